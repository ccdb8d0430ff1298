select date_trunc('minute', received_at) as minute, sum(page_bytes) as bytes
from hits
where happened_at >= timestamp '2025-04-02 12:00:00' and happened_at < timestamp '2025-04-03 12:00:00'
    and http_status = 200
group by minute
order by minute
limit 30 offset 10
