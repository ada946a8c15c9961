"""Many processes of a crawl in a virtual world: `README.md`."""
