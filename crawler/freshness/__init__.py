"""When a known page is worth fetching again: the refresh model and its estimators.

params.py          what is known of a page: importance, change rate, signal quality
crawl_value.py     the gain of one more crawl, by every formula of the papers
deadline_queue.py  the page to crawl now, without evaluating all values
estimate.py        change rate and signal quality from what crawls found
"""
