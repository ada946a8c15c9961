"""The command lines of the lab."""
