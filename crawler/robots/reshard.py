"""Moves copies of robots.txt with their hosts when a crawl is resharded."""

from collections.abc import Callable

from crawler.storage.keys import ROBOTS
from crawler.storage.kv import scan_prefix
from crawler.storage.reshard import NewProcess
from crawler.urls.canonical import hostname


def move(to: NewProcess, bucket_of: Callable[[str], int]) -> None:
    """Copy the robots.txt files of the new process's hosts. `bucket_of` returns the bucket of a host name."""
    for source in to.sources:
        for key, value in scan_prefix(source.store, ROBOTS):
            if to.owns(bucket_of(hostname(key[2:].decode() + "/"))):
                to.put(key, value)
