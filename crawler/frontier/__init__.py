"""The frontier: it keeps the URLs to fetch on disk, has a polite queue for each host, and chooses what to fetch next."""
