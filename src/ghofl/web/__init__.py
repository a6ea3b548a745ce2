"""What answers over HTTP here shares: whole requests, connections that keep nobody out, and the server they run in."""
