"""Fetch tasks and their slots."""
