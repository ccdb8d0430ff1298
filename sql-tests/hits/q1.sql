select count(*) as hits, sum(seconds_on_page) as seconds, avg(page_bytes) as bytes, min(happened_at) as first,
    max(happened_at) as last
from hits
