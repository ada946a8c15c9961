"""Drawn webs on a virtual clock: what the shipped schedule gains over asking every page equally often.

worlds       what a web is like, the web drawn from it, and the list of webs
playing      one policy on one web, event by event; freshness from every change and every fetch
whole_crawl  one shipped process on such a web, in place of the schedule alone
gains        gains with their errors; tables
calibration  what is said of copies against the truth, by decile

`crawler lab worlds --help` says how to use it.
"""
