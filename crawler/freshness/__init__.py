"""Decides when a known page is worth fetching again: the refresh model and its estimators.

params.py           the parameters of a page: importance, change rate, signal quality
value_kernel.py     the gain of one more crawl and its inverse, for all parameters
residuals.py        the terms of that sum, without cancellation
neighbourhood.py    the clock that runs faster while neighbours change
change_rates.py     change rates, from a page's own crawls and its site's
signal_quality.py   the quality of signals: the recall by site, and what a crawl teaches the next four
source_precision.py the precision of signals, by site and source
source_honesty.py   the priors of a source on a new site, from all sites
false_signals.py    whether the false signals of a site depend on the change rates of its pages
page_kinds.py       which pages of a site have good signals, and how bad those of the others are
signal_evidence.py  compares what a crawl found with what the page's signals predicted
biases.py           corrects the predictions of changes, by factors for the whole crawl
learning.py         all three estimators, in one call per crawl
recalibration.py    P(fresh) as reported to users, corrected by what crawls found
discovery.py        the value of fetching a hub again for the new pages it would show
columns.py          arrays of millions of rows that grow in place

All modules except params.py, recalibration.py and columns.py are in Cython's pure-Python mode. The C types of a
module are declared in the `.pxd` file beside it (`crawler/README.md`, "How to add").
"""
