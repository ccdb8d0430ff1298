select browser, browser_version, sum(case when script_errors > 0 then 1 else 0 end) as broken,
    sum(case when is_bounce then 1 else 0 end) as bounced, count(*) as hits
from hits
group by browser, browser_version
order by broken desc, hits desc, browser, browser_version
limit 20
