"""The parts that define a crawl: its directory, identity, topology and seeds."""
