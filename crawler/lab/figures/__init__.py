"""Figures of the papers, one file a paper."""
