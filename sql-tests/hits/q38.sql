select coalesce(referrer_site_id, -1) as came_from, count(*) as hits, count(downlink_kbps) as measured,
    sum(coalesce(downlink_kbps, 0)) as kbps
from hits
where is_entry
group by coalesce(referrer_site_id, -1)
order by hits desc, came_from
limit 10
