select count(distinct search_phrase) as phrases, count(*) as searches
from hits
where search_phrase <> ''
