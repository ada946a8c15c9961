"""Figures of the papers, one file per paper or topic."""
