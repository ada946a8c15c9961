"""Compares orders of new URLs by the quality that each order finds early, on link graphs of real documentation."""
