"""Obeys robots.txt, with a parser for its rules and a cache of each authority's file."""
