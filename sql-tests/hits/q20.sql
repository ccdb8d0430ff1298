select count(distinct regexp_replace(path, '[0-9]+', '#')) as shapes
from hits
where not is_cached
