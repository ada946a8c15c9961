# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Computes the offsets of directories and hosts: how far their neighbourhood clock is ahead of plain time.

A page's clock runs faster while its directory and site are changing, and slower while they are quiet
(`freshness/neighbourhood.py`). The base deadline (`deadlines.py`) does not take the speed of the clock into
account. A faster or slower clock moves the deadlines of all pages of a directory by the same time, the
offset, unless the pages were just crawled. So when a page changes, the heap entries of other pages need not
be rewritten. In the heap of a host's directories, the key of each directory includes the directory's offset.
In the heap of all hosts, the key of each host includes the host's offset. Offsets above 0 fall with time, and
deadlines then become later, so the key of an entry in a heap may be too early. `Deadlines.due` computes the
exact value. An offset below 0 rises with time. The key of a directory or a host includes the offset that it
will have when its first page is due.

*Maximum ages.* A maximum age is measured in plain time, so an offset below 0 must not delay the page.
Therefore a directory or a host that contains a page with a maximum age has no offset below 0, and its pages
are checked more often.
"""

import cython

if cython.compiled:
    from cython.cimports.crawler.freshness.learning import Learning
    from cython.cimports.crawler.frontier.refresh.tables import Tables
else:
    from crawler.freshness.learning import Learning
    from crawler.frontier.refresh.tables import Tables

# An offset below 0 and the time at which the first page will be due depend on each other. Computing both in
# turn this many times is precise enough.
_STEPS = cython.declare(cython.int, 3)


@cython.cclass
class Offsets:
    """The offsets of directories and hosts. All are 0 unless `clocked` is True."""

    def __init__(self, tables: Tables, learning: Learning, clocked: bool) -> None:
        self.tables, self.learning, self.clocked = tables, learning, clocked

    @cython.cfunc
    @cython.exceptval(check=False)
    def of_page(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return the offset of a page that was crawled long ago: its directory's plus its host's."""
        if not self.clocked:
            return 0.0
        return self.of_directory(self.tables.page_heaps.nodes[page].owner, now) + self.of_host(host, now)

    @cython.cfunc
    @cython.exceptval(check=False)
    def of_directory(self, directory: cython.int, now: cython.double) -> cython.double:
        if not self.clocked:
            return 0.0
        lead: cython.double = self.learning.directory_lead(
            self.tables.directory_heaps.nodes[directory].owner, directory, now
        )
        return max(lead, 0.0) if self.tables.directory_rows[directory].bounded else lead

    @cython.cfunc
    @cython.exceptval(check=False)
    def of_host(self, host: cython.int, now: cython.double) -> cython.double:
        if not self.clocked:
            return 0.0
        lead: cython.double = self.learning.site_lead(host, now)
        return max(lead, 0.0) if self.tables.host_rows[host].bounded else lead

    @cython.cfunc
    @cython.exceptval(check=False)
    def directory_key(self, directory: cython.int, first: cython.double, now: cython.double) -> cython.double:
        """Return the key of a directory, given the key of its first page.

        An offset below 0 rises towards 0. So the offset at the time at which the page will be due is used.
        """
        host: cython.int
        after: cython.double
        _step: cython.int
        offset: cython.double = self.of_directory(directory, now)
        if offset < 0.0:
            host = self.tables.directory_heaps.nodes[directory].owner
            after = min(self.of_host(host, now), 0.0)
            for _step in range(_STEPS):
                offset = self.of_directory(directory, max(first - offset - after, now))
        return first - offset

    @cython.cfunc
    @cython.exceptval(check=False)
    def host_key(self, host: cython.int, first: cython.double, now: cython.double) -> cython.double:
        """Return the key of a host, given the key of its first directory."""
        _step: cython.int
        offset: cython.double = self.of_host(host, now)
        if offset < 0.0:
            for _step in range(_STEPS):
                offset = self.of_host(host, max(first - offset, now))
        return first - offset

    @cython.cfunc
    @cython.exceptval(check=False)
    def is_bounded(self, page: cython.int, host: cython.int) -> cython.bint:
        """Return whether a maximum age keeps the offset of the page's directory or of its host from being below 0."""
        return (
            self.tables.host_rows[host].bounded
            or self.tables.directory_rows[self.tables.page_heaps.nodes[page].owner].bounded
        )
