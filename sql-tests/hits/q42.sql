select split_part(url, '/', 3) as host, count(*) as hits, sum(requests) as requests
from hits
where event_kind in (0, 4)
group by split_part(url, '/', 3)
order by requests desc, host
limit 10 offset 5
