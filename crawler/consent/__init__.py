"""Reads the statements of sites about the uses that they allow (`consent/README.md`)."""
