"""Turns fetches, links, signals and seeds into changes of the store."""
