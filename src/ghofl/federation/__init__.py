"""One secure round at the server, whatever carries its letters."""
