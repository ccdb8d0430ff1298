select url_hash, site_id, count(*) as hits
from hits
group by url_hash, site_id
order by hits desc, url_hash
limit 10 offset 1000
