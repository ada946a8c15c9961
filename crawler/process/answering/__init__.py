"""The commands that a process answers."""
