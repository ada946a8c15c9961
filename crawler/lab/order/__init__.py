"""Compares orders of new URLs on link graphs of real documentation by the quality that each finds early."""
