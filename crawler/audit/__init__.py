"""`crawler report`: what is wrong with a site, as a webmaster wants to know it.

    findings   what is noted of each URL and page, and what follows from it (pure)
    collect    the crawl's records and stored pages, read into findings
    render     text, JSON, CSV
    html       one page that can be sent around: no script, no request

Two passes. The first reads the records: statuses, redirects, times, depths.
The second reads the stored pages in several processes, for titles, for what
they need, and for links that lead to a URL which the first pass found wanting.
Memory: some 500 bytes a page, and what is listed.
"""
