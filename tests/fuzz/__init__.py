"""Fuzz every parser of foreign data with mutated input. `scripts/bench/fuzz.py` does the same for longer."""
