"""Fetch tasks and the slots that limit them."""
