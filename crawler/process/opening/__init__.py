"""Opens the parts of a process from its directory."""
