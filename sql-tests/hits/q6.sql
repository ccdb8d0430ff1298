select device_kind, count(*) as hits, avg(load_ms) as load_ms, sum(clicks) as clicks
from hits
group by device_kind
order by device_kind
