"""From options or a budget to a recipe."""
