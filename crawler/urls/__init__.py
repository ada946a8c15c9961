"""URLs: their canonical form, their fingerprint, and the cache of recent URLs."""
