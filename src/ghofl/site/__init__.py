"""What leaves a site, and everything that it asks before it lets it go."""
