"""Compares orders of new URLs by how many good pages each of them finds early, on link graphs of real documentation."""
