"""Simulated webs on a virtual clock, to measure the gain of the shipped schedule over uniform refreshing.

worlds       the parameters of a web, the web drawn from them, and the list of webs
playing      one policy on one web, event by event; freshness from every change and every fetch
whole_crawl  one shipped process on such a web, instead of the schedule alone
gains        gains with their errors; tables
calibration  compares the stated probabilities that copies are current with the truth, by decile

`crawler lab worlds --help` explains the command.
"""
