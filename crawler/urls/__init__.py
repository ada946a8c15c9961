"""URLs: their canonical form, fingerprint, and the cache of those met lately."""
