"""Applies the limits of the crawl, detects its end, and exchanges messages with the other processes."""
