"""The frontier: to-do URLs on disk, a polite queue per host, and the choice of what to fetch next."""
