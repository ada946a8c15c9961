"""The export formats, which write the page cache for other tools.

    selection     which captures are exported, and the newest copy of each page
    warc_stream   WARC, and the CDXJ index of the segments in the crawl directory
    wacz          one zip file for replay tools, with index and page list
    mirror        files with rewritten links that any browser opens
    rows          one row per URL: JSON lines, Parquet
    text          the readable text of a page
    duplicates    pages that are exact or near copies of others
    where         the expression that selects rows
    crawl_log     Heritrix's one-line log

The modules here read one or several archives (one per process of a crawl). The functions accept and return
iterables, so they use bounded memory for crawls of any size. The crawl need not be stopped, and its processes
are not involved in an export. Functions of other stages, such as finding links or judging pages, are passed
in as callables. `crawler/export` connects the export formats with the other stages.
"""
