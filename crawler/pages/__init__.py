"""The page cache: what was fetched, when, and whether it had changed."""
