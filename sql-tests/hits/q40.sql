select ip >> 16 as network, user_agent, system_version, count(*) as hits
from hits
group by ip >> 16, user_agent, system_version
order by hits desc, network, user_agent, system_version
limit 10
