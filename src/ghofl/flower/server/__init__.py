"""A federation's run at the server: whom it asks, what it accepts, keeps and makes of it."""
