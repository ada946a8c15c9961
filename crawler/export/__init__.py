"""Exports and reports of a crawl that is running or at rest (README.md).

An export contains everything that was committed when the export began. The formats are in
`crawler/pages/formats`, and the report for webmasters is in `crawler/audit`.
"""
