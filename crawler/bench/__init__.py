"""Benchmarks that compare parts of the crawler with other programs in the same run; see `README.md`."""
