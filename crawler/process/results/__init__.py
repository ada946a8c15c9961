"""Turns the end of a fetch into its change."""
