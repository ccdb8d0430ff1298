select visitor_id, count(*) as hits
from hits
group by visitor_id
order by hits desc, visitor_id
limit 10
