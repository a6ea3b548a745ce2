"""A head for one site, from a total and the site's own rows: what it may change, and how that is chosen."""
