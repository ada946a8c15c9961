"""N processes on one machine: supervisor, children, restarts."""
