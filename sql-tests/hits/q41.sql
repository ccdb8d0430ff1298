select page_language, section, avg(length(title)) as letters, min(title) as first, max(path) as last
from hits
where http_method = 'GET'
group by page_language, section
order by letters desc, page_language, section
limit 20
