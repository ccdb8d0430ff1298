select site_id, count(distinct visitor_id) as visitors, count(distinct url_hash) as pages
from hits
group by site_id
order by visitors desc, site_id
limit 10
