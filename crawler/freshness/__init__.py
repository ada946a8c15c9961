"""When a known page is worth fetching again: the refresh model and its estimators.

params.py          what is known of a page: importance, change rate, signal quality
value_kernel.py    the gain of one more crawl and its inverse, for all parameters
residuals.py       the terms that it sums, without cancellation
value_columns.py   the same for arrays of pages
neighbourhood.py   the clock that runs faster while neighbours change
change_rates.py    change rates, a page's own crawls weighed against its site's
signal_quality.py  how far signals are to be believed, by site and source
learning.py        all three, one call a crawl
discovery.py       the value of asking a hub again for the new pages it would show
"""
