# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Computes the offsets of directories and hosts: how far their neighbourhood clock is ahead of plain time.

A page's clock runs faster while its directory and site are changing, and slower while they are quiet
(`freshness/neighbourhood.py`). The base deadline (`deadlines.py`) does not take the speed of the clock into
account. A faster or slower clock moves the deadlines of all pages of a directory by the same time, the
offset, unless the pages were just crawled. So when a page changes, the heap entries of other pages need not
be rewritten.

*Hosts.* The key of a directory is the instant at which its first page is due (`first_pages.py`). A crawl of a
page changes the offset of the directory, whose key is then computed again. The crawl also changes the offset
of the host, and so the deadlines of all directories of the host. A rise makes deadlines earlier. So the key
of a host is the key of its first directory minus the sum of the rises since that key was computed (`shift`).
A fall is ignored until the key of the directory is computed again, so keys may be too early.

*Maximum ages.* A maximum age is measured in plain time, so an offset below 0 must not delay the page.
Therefore a directory or a host that contains a page with a maximum age has no offset below 0, and its pages
are checked more often.
"""

import cython
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.freshness.neighbourhood import lead_of
from cython.cimports.crawler.frontier.refresh.tables import Tables
from cython.cimports.libc.math import exp

# By this share of the difference, each crawl of a host moves `mark` to the offset. Most directories have a crawl, which
# recomputes their keys, during the crawls after which a high offset is forgotten.
_RELAX = cython.declare(cython.double, 1.0 / 32.0)


class Offsets:
    """The offsets of directories and hosts. All are 0 unless `clocked` is True."""

    def __init__(self, tables: Tables, learning: Learning, clocked: bool) -> None:
        self.tables, self.learning, self.clocked = tables, learning, clocked

    def of_page(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return the time by which the neighbourhood of a page moves the page's deadline.

        This is only a part of the offset for a page that was crawled lately.
        """
        if not self.clocked:
            return 0.0
        offset: cython.double = self.of_old(self.tables.page_heaps.nodes[page].owner, host, now)
        return lead_of(max(now - self.tables.crawled[page], 0.0), offset, self.learning.scale)

    def of_directory(self, directory: cython.int, now: cython.double) -> cython.double:
        if not self.clocked:
            return 0.0
        lead: cython.double = self.learning.directory_lead(
            self.tables.directory_heaps.nodes[directory].owner, directory, now
        )
        return max(lead, 0.0) if self.tables.directory_rows[directory].bounded else lead

    def of_host(self, host: cython.int, now: cython.double) -> cython.double:
        if not self.clocked:
            return 0.0
        lead: cython.double = self.learning.site_lead(host, now)
        return max(lead, 0.0) if self.tables.host_rows[host].bounded else lead

    def of_old(self, directory: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return the offset of the pages of a directory that were crawled long ago: its own plus its host's."""
        return self.of_directory(directory, now) + self.of_host(host, now)

    def earliest(
        self, directory: cython.int, host: cython.int, key: cython.double, now: cython.double
    ) -> cython.double:
        """Return the earliest instant at which a page with this key may be due.

        An offset above 0 counts in full, as if the page had been crawled long ago. An offset below 0 does not count.
        """
        return key - max(self.of_old(directory, host, now), 0.0)

    def note_crawl(self, host: cython.int, now: cython.double) -> cython.void:
        """Move the deadlines of all directories of a host after a crawl that has raised the host's offset.

        `shift` is the sum of all rises. The key of a directory is the instant at which its first page is due plus the
        `shift` of that time. `mark` is the highest offset of the last crawls; only a rise above it counts.
        """
        offset: cython.double = self.of_host(host, now)
        age: cython.double = max(now - self.tables.host_rows[host].marked_at, 0.0)
        mark: cython.double = self.tables.host_rows[host].mark * exp(-age / self.learning.scale)
        if offset > mark:
            self.tables.host_rows[host].shift += offset - mark
            mark = offset
        self.tables.host_rows[host].mark = mark + _RELAX * (offset - mark)
        self.tables.host_rows[host].marked_at = now

    def may_lead(self, directory: cython.int, key: cython.double, now: cython.double) -> cython.bint:
        """Return whether a page with this key may be due before the present key of its directory."""
        if not self.clocked:
            return False
        host: cython.int = self.tables.directory_heaps.nodes[directory].owner
        first: cython.double = self.tables.directory_heaps.nodes[directory].key
        return self.earliest(directory, host, key, now) < first - self.tables.host_rows[host].shift

    def is_bounded(self, page: cython.int, host: cython.int) -> cython.bint:
        """Return whether a maximum age keeps the offset of the page's directory or of its host from being below 0."""
        return (
            self.tables.host_rows[host].bounded
            or self.tables.directory_rows[self.tables.page_heaps.nodes[page].owner].bounded
        )
