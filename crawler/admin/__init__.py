"""Views of a crawl from outside: status, control socket, metrics, dashboard."""
