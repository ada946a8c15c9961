"""Exports and reports of a crawl that is running or at rest.

The crawling processes take no part in an export.

    archives      the archives of all processes, read from copies of their stores
    worker_pool   processes that share the work on many pages
    page_tasks    the work on one page: rows, links, files of a mirror
    stored_pages  reads title, links and directives from a stored page
    writing       one export from beginning to end

An export sends no request to a running process and takes none of its locks, so it never
delays a crawl. An export contains everything that was committed when the export began.
The formats are in `crawler/pages/formats`, and the report for webmasters is in `crawler/audit`.
"""
