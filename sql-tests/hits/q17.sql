select search_phrase, min(title) as title, count(*) as hits
from hits
where search_phrase <> '' and title like '%garden%' and url not like '%www.%'
group by search_phrase
order by hits desc, search_phrase
limit 10
