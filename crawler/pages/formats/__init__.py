"""What an export writes: the page cache in the formats of other tools.

    selection     which captures, and the newest copy of each page
    warc_stream   WARC, and the CDXJ index of the segments as they lie
    wacz          one zip file for replay tools, index and page list inside
    mirror        files that any browser opens, links rewritten
    rows          a row for each URL: JSON lines, Parquet
    text          the readable text of a page
    duplicates    which pages are copies of others, nearly or exactly
    where         the expression that selects rows
    crawl_log     Heritrix's one-line log

All of it is plain objects over one or several archives (the processes of a
crawl): iterables in, iterables out, memory bounded whatever the size of the
crawl. Nothing here needs the crawl to stand still or its process to help. What
another stage can do better (finding links, judging pages) comes as a callable;
`crawler/export` puts the two together.
"""
