select window_width - window_width % 100 as width, window_height - window_height % 100 as height, count(*) as hits
from hits
where device_kind = 1 and happened_on >= date '2025-04-01'
group by window_width - window_width % 100, window_height - window_height % 100
order by hits desc, width, height
limit 10
