select search_phrase, city
from hits
where search_phrase <> ''
order by search_phrase, city, hit_id
limit 20
