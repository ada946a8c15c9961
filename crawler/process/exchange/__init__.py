"""The limits and the end of the crawl, and the exchange with its other processes."""
