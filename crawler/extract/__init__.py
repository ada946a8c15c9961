"""What a body holds: the links of pages, sitemaps and feeds."""
