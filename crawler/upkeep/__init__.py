"""Commands for a crawl at rest: check and repair, reshard, recover."""
