select happened_at, load_ms, url
from hits
where load_ms is not null
order by load_ms desc, hit_id
limit 10
