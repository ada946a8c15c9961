"""Several processes on one machine: the supervisor, its children, and their restarts."""
