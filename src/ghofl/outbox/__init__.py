"""What would leave a site: its rows, added up as the recipe says."""
