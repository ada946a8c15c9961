"""Converts crawl directories of earlier formats to the current one."""
