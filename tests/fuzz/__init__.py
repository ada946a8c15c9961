"""Mutated input for every parser of foreign data; `scripts/bench/fuzz.py` is the long form."""
