"""The commit queue and the loop that writes it."""
