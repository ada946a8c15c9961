"""From the end of a fetch to its change."""
