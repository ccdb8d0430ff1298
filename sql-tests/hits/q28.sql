select happened_at, section, title, seconds_on_page
from hits
where visitor_id = 8756208943495385479
order by happened_at, hit_id
limit 10
