select section, count(distinct visitor_id) as visitors, count(distinct site_id) as sites
from hits
group by section
order by visitors desc, section
