select extract(hour from local_time) as hour, is_robot, count(*) as hits, avg(scroll_percent) as scrolled
from hits
group by extract(hour from local_time), is_robot
order by hour, is_robot
