select interests & 7 as topics, count(*) as hits, count(distinct network_id) as networks
from hits
where (interests & 8) = 0
group by interests & 7
order by topics
