select url, count(*) as hits, sum(seconds_on_page) as seconds
from hits
group by url
order by hits desc, url
limit 15
