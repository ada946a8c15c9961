"""The URL filter, which accepts or rejects links by their URL (`urlfilter/README.md`, "Order of rules" and "Traps").

    raw hrefs --> canonical form --> scope, extensions, exclude, include, traps --> fingerprint --> links

rule_names.py    RULES, the table of all rule names
url_filter.py    Scope and UrlFilter: the verdict on one URL
traps.py         path shapes that only traps produce
filter_fingerprint.py says whether the user's filter has changed since an earlier run
kept_verdicts.py KeptVerdicts: the verdicts of the user's filter on a page that a run did not finish
link_filter.py   LinkFilter: the hot path from the hrefs of a page to accepted links, with a memo

A verdict is a pure function of the URL, its flags and the scope. The URL filter drops rejected URLs and
counts them by rule. Rules that depend on the state of a crawl (depth, budgets of hosts and domains,
robots.txt) belong to the frontier, which parks or denies URLs.
"""
