"""`crawler report` finds the faults of a site, for its webmaster.

    findings   collects facts about each URL and page, and judges them (pure)
    collect    passes the crawl's records and stored pages to findings
    render     text, JSON, CSV
    html       one self-contained page: no script, no request

The audit makes two passes. The first pass reads the records of URLs, which contain their status, redirect,
answer time and depth. The second pass reads the stored pages, in several processes. The second pass collects
the titles of the pages, the images, scripts and style sheets that they need, and their links to URLs that the
first pass found faulty. The audit needs about 500 bytes of memory per page, plus the listed findings.
"""
