"""`crawler report`: the faults of a site, for its webmaster.

    findings   notes on each URL and page, and the verdicts on them (pure)
    collect    the crawl's records and stored pages, read into findings
    render     text, JSON, CSV
        html       one page to send around: no script, no request

Two passes. The first reads the records: statuses, redirects, times, depths. The
second reads the stored pages in several processes: titles, requisites, and links to
URLs that the first pass found faulty. Memory: some 500 bytes a page, and the listed
findings.
"""
