"""Fuzz every parser of foreign data with mutated input. `scripts/bench/fuzz.py` fuzzes them for longer."""
