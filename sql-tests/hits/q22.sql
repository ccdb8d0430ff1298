select *
from hits
where search_phrase like '%lighthouse%'
order by happened_at, hit_id
limit 10
