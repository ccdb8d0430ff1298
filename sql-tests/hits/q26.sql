select happened_on, count(*) as hits, count(order_id) as orders, sum(order_value) as revenue
from hits
group by happened_on
order by happened_on
