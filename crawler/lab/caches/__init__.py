"""URL caches by trace."""
