"""Obeys robots.txt: its rules, and a cache of each authority's file."""
