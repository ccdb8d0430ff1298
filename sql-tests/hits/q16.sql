select site_id, count(*) as hits, min(url) as example
from hits
where url like '%/shop/%' and title like '%harbour%'
group by site_id
order by hits desc, site_id
limit 10
