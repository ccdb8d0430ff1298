select count(*) as failures
from hits
where http_status >= 400 and not is_robot
