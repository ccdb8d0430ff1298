select count(*) as hits
from hits
where title like '%coffee%'
