select searched.search_engine, count(*) as orders, sum(bought.order_value) as revenue
from hits as searched
join hits as bought on bought.visit_id = searched.visit_id
where searched.source_kind = 2 and bought.event_kind = 5
group by searched.search_engine
order by searched.search_engine
