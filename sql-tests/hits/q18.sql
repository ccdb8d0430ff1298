select count(*) as hits, count(distinct visitor_id) as visitors
from hits
where regexp_like(url, 'session=[0-9]{2}[0-9a-f]*[a-f]$')
