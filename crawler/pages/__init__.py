"""The page cache: the stored answers of each URL, with times and detected changes."""
