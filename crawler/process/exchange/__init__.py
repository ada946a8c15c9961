"""The limits and the end of the crawl, and the exchange of messages with its other processes."""
