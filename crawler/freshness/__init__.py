"""Decides when a known page is worth fetching again: the refresh model and its estimators.

params.py          the parameters of a page: importance, change rate, signal quality
value_kernel.py    the gain of one more crawl and its inverse, for all parameters
residuals.py       the terms of that sum, without cancellation
neighbourhood.py   the clock that runs faster while neighbours change
change_rates.py    change rates, from a page's own crawls and its site's
signal_quality.py  the precision and recall of signals, by site and source
page_kinds.py      which pages of a site have good signals, and how bad those of the others are
learning.py        all three estimators, in one call per crawl
recalibration.py   P(fresh) as reported to users, corrected by what crawls found
discovery.py       the value of fetching a hub again for the new pages it would show
columns.py         arrays of millions of rows that grow in place
"""
