select city, system, count(*) as hits, count(distinct device_model) as models
from hits
where city in ('München', 'São Paulo', '東京', 'Kraków', 'London') and browser in (1, 2, 4, 8)
group by city, system
order by city, system
