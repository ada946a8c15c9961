"""Looking into a crawl from outside: status, control socket, metrics."""
