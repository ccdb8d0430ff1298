select campaign, campaign_medium, sum(click_price) as cost, count(*) as clicks, max(advert_id) as advert
from hits
where campaign <> ''
group by campaign, campaign_medium
order by cost desc, campaign, campaign_medium
limit 15
