select section, next_section, count(*) as steps
from (
    select section, lead(section) over (partition by visit_id order by hit_number) as next_section
    from hits
) as steps
where next_section <> section
group by section, next_section
order by steps desc, section, next_section
limit 15
