select visitor_id, section, count(*) as hits, max(happened_at) as latest
from hits
where not is_robot
group by visitor_id, section
order by hits desc, visitor_id, section
limit 20
