"""Runs a crawl in several processes on one machine: the supervisor, its child processes, and their restarts."""
