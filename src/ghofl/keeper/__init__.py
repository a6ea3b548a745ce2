"""Who answers for a site: requests become answers, in the site's own process."""
