select country, language, count(*) as hits, count(order_id) as orders, sum(order_value) as revenue
from hits
group by country, language
order by hits desc, country
