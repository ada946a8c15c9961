"""A crawl at rest: check, reshard, recover."""
