select search_phrase, count(*) as searches
from hits
where search_phrase <> ''
group by search_phrase
order by searches desc, search_phrase
limit 10
