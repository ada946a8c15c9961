"""Reads what sites allow their pages to be used for (`consent/README.md`)."""
