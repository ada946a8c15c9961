"""What a crawl is: its directory, identity, topology, seeds."""
