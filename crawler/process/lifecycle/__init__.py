"""Tasks, limits and the end of a process."""
