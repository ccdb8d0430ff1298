select count(order_id) as orders, sum(order_value) as revenue, min(order_value) as smallest, max(order_value) as largest
from hits
