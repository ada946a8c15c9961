"""Exports and reports of a crawl, running or at rest, without its help.

    archives    the archives of all processes, read from copies of their stores
    crew        processes that share the work on many pages
    page_work   what is done with one page: rows, links, files of a mirror
    writing     one export from beginning to end

Nothing here asks a running process for anything or takes its lock, so that no
export can hold up a crawl; what is seen is what was committed when it began.
`crawler/pages/formats` has the formats, `crawler/audit` the report for
webmasters.
"""
