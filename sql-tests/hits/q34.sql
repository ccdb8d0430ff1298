select hits, count(*) as visits, avg(seconds) as seconds
from (
    select visit_id, count(*) as hits, sum(seconds_on_page) as seconds
    from hits
    group by visit_id
) as visits
group by hits
order by hits
