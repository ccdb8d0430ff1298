select count(distinct visitor_id) as visitors, count(distinct visit_id) as visits
from hits
