"""What a URL is to the crawler: its canonical form, its fingerprint, and the cache of recent URLs."""
