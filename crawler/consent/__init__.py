"""Reads for which uses sites allow their pages (`consent/README.md`)."""
