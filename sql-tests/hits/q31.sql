select connection_kind, median(cast(load_ms as double)) as middle, max(load_ms) as slowest, avg(layout_shift) as shift
from hits
group by connection_kind
order by connection_kind
