"""The page cache: the stored answers of each URL, their times, and whether the page had changed."""
