"""Mutated input for everything that reads what others send; `scripts/bench/fuzz.py` is the long form."""
