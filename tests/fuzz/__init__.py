"""Fuzz every parser of foreign data with mutated input; `scripts/bench/fuzz.py` runs longer."""
