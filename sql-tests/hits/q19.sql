select regexp_replace(referrer, '^https?://(www\.)?([^/]+)/.*$', '\2') as host, count(*) as hits,
    avg(length(referrer)) as letters
from hits
where referrer <> ''
group by host
having count(*) > 20
order by hits desc, host
limit 15
