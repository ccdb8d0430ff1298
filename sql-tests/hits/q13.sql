select search_engine, search_phrase, count(*) as searches, count(distinct visitor_id) as visitors
from hits
where source_kind = 2
group by search_engine, search_phrase
order by visitors desc, searches desc, search_engine, search_phrase
limit 10
