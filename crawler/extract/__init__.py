"""Extracts the links of pages, sitemaps, feeds and style sheets."""
