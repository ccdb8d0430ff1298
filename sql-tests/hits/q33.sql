select visitor_id, count(distinct visit_id) as visits, count(distinct site_id) as sites, sum(order_value) as spent
from hits
group by visitor_id
having count(distinct visit_id) >= 5 and sum(order_value) > 0
order by spent desc, visitor_id
limit 10
