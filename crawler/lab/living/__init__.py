"""Simulated webs on a virtual clock, to measure the gain of the shipped schedule over uniform refreshing."""
