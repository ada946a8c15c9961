"""Exports and reports of a crawl, running or at rest, without its help.

    archives    the archives of all processes, read from copies of their stores
    crew        processes that share the work on many pages
    page_work   what is done with one page: rows, links, files of a mirror
    writing     one export from beginning to end

An export asks nothing of a running process and takes no lock of it, so it never holds
up a crawl. It sees what was committed when it began. `crawler/pages/formats` has the
formats, `crawler/audit` the report for webmasters.
"""
