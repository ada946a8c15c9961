"""The experiments of the papers, as commands that run the crawler's own code; see `README.md`."""
