"""Background tasks, limits and shutdown of a process."""
