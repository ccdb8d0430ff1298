select date_trunc('hour', happened_at) as hour, count(*) as hits, count(distinct visitor_id) as visitors
from hits
where happened_on between date '2025-03-10' and date '2025-03-11'
group by hour
order by hour
