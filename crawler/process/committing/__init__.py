"""The commit queue and what empties it."""
