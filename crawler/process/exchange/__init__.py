"""The crawl as a whole, and its other processes."""
