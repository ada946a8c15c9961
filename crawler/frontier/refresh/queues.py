# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""The heaps of pages, directories and hosts, and the choice of the page that is fetched next.

    eligible hosts               by first deadline of the host
      host: its directories      by first deadline of the directory
        directory: its pages     by base deadline
    waiting hosts                by the instant from which they may be requested
    withheld pages               failed, gone, too young
    postponed directories        by the instant at which they are examined again

A page is in exactly one of these places: the heap of its directory, the heap of withheld pages, or in flight.
A host whose level is above the common level goes first as soon as it may be requested. If such a host were
ordered by its deadline, its high level would delay its requests, and the delay would raise its level further.

*Keys are optimistic*: a key may be too early. A key becomes too early when an offset above 0 falls between
crawls, or when a level moves by a small step. When an entry reaches the top of its heap, it is checked: its
offset and its value are recomputed. If the key of the entry was too early, the entry is put back with the
correct key, and the next entry is checked.

*While the crawl is calm, due pages are taken in the order in which they are found* (`level_controller.py`).
All due pages of a calm crawl are taken soon, so their order has hardly any effect, and their keys need no
correction. But pages may wait for their host even while the crawl is calm. So keys are corrected if the host
has a level of its own, or if it could not be requested when its first page was due. A page that is not due is
taken if its key is nearly correct.

*Otherwise, due pages are ordered by their values.* While the crawl is not calm, a page is taken only if its
key is correct, even if its value already reaches the level. If incorrect keys were accepted, the host with
the largest offset would always go first, because its key would be the earliest. The more the value of a due
page exceeds the level, the earlier is its key (`Deadlines.due_by_worth`). Due pages are therefore taken in
the order of Algorithm 1 of Busa-Fekete et al. even while many pages are due, for example after a restart, a
pause, or a jump of the level.

*A page that is not due steps aside for pages that are worth more.* Among pages with similar intervals that
are not due, the page with the first deadline has the greatest value. But the clock of a page that was just
crawled may run so fast that the page is due soon, although it is worth almost nothing. So a directory whose
first page has reached less than 0.7 of its wait is *postponed*: its key is computed from the value of the
page that is worth most (`FirstPages.find_ripest`). A key computed from a value becomes too late as the value
grows. So a postponed directory is examined again halfway to the deadline of its first page. If such pages were
taken early, a fifth of all fetches would go to pages worth less than a tenth of the level. The interval of a
hub may be a hundred times shorter than other intervals, so a hub at the top is ordered by its value, too
(`Deadlines.early_by_worth`).

*Bounded work.* A look is one search for the page to fetch next. A look corrects at most _CHECKS_MAX keys, and
releases at most RELEASES_MAX waiting hosts and pages. The next look continues with the remaining keys, hosts
and pages. After a large move of the level, a sweep recomputes the keys of all pages, a few at a time.
"""

import cython
from cython.cimports.crawler.frontier.refresh.absences import Absences
from cython.cimports.crawler.frontier.refresh.deadlines import BY_VALUE, Deadlines
from cython.cimports.crawler.frontier.refresh.first_pages import FirstPages
from cython.cimports.crawler.frontier.refresh.level_controller import STANDS, LevelController
from cython.cimports.crawler.frontier.refresh.tables import (
    AWAY,
    DOUBLING,
    ELIGIBLE,
    EXPLORED,
    FAILED,
    HELD,
    NOWHERE,
    RECALLED,
    WAITING,
    WITHHELD,
    Tables,
)

# maximum number of waiting hosts or pages that one search for the best page releases
_RELEASES_MAX = cython.declare(cython.Py_ssize_t, 64)
# maximum number of rows that one search for the best page examines if there are recalls
_RECALL_ROWS = cython.declare(cython.Py_ssize_t, 1024)
# all keys are recomputed if the smaller of the old and the new level is below this share of the larger
_SWEEP_FROM = cython.declare(cython.double, 0.95)
# Error of a key, relative to the age at which its page is due. The second number is for a page that is not due.
_KEY_TOLERANCE = cython.declare(cython.double, 1e-3)
_EARLY_TOLERANCE = cython.declare(cython.double, 0.04)
# number of keys that one search for the best page recomputes; each costs up to 2 us
_CHECKS_MAX = cython.declare(cython.Py_ssize_t, 64)


class Queues:
    """The heaps of pages, directories and hosts.

    `checks` counts how often the key of a page was compared with the page's value.
    """

    def __init__(
        self,
        tables: Tables,
        controller: LevelController,
        deadlines: Deadlines,
        absences: Absences,
        retry_age: float,
    ) -> None:
        self.tables, self.controller, self.deadlines = tables, controller, deadlines
        self.first_pages = FirstPages(tables, deadlines.learning, deadlines.offsets)
        self.absences, self.retry_age = absences, retry_age
        self.eligible = self.waiting = self.withheld = self.postponed = -1
        self.swept, self.swept_level = 0, controller.level
        self.checks = 0

    def first(self, now: cython.double) -> cython.int:
        """Return the first page of the first host, after recomputing the keys at the top."""
        _step: cython.Py_ssize_t
        host: cython.int
        page: cython.int
        found: cython.int = -1
        aside: list = []  # hubs that are not due, with their keys
        for _step in range(_CHECKS_MAX):
            host = self.eligible
            if host < 0:
                break
            if self.tables.host_rows[host].ready > now:  # the clock was set back
                self.place_host(host, now)
                continue
            page = self._leader(host, now)
            if page < 0 or self.eligible != host:
                continue
            if not self._verify(page, host, now) or self.eligible != host:
                continue
            key: cython.double = self.tables.page_heaps.nodes[page].key
            by_worth: cython.double = self.deadlines.early_by_worth(page, host, now)
            if by_worth <= key:
                found = page
                if self.first_pages.due > now:
                    self.controller.caught_up = now
                break
            aside.append((page, key))
            self.move(page, by_worth, now)
        if self.eligible < 0 and self.withheld >= 0:
            self.release_young(self.withheld, now)
        if found < 0 and self.eligible >= 0:
            found = self.tables.first_of(self.eligible)
        for hub, earlier in aside:
            if not self.tables.states[hub] & WITHHELD:  # a search that was not finished may have withheld it
                self.move(hub, earlier, now)
        return found

    def release_young(self, page: cython.int, now: cython.double) -> cython.void:
        """Release a page that is withheld only because of its clock."""
        state: cython.uint = self.tables.states[page]
        if (
            state & WITHHELD
            and not state & (FAILED | AWAY)
            and now - self.tables.crawled[page] >= self.tables.min_age(page)
        ):
            self.leave(page, now)
            self._enter(page, self.tables.crawled[page], now)

    def _leader(self, host: cython.int, now: cython.double) -> cython.int:
        """Correct the key of a host's first directory, and return the page of the directory that is due first.

        Return -1 if another directory is first now, or if the page could not be found.
        """
        directory: cython.int = self.tables.host_rows[host].root
        page: cython.int = self.first_pages.find(directory, now)
        if not self.deadlines.clocked:
            return page
        due: cython.double = self.first_pages.due
        if due > now and not self.first_pages.cut and self.first_pages.is_unripe(page, directory, host, now):
            return self._first_by_value(directory, host, due, now)
        if self.first_pages.cut and due > now:
            # The search was not finished. The page that seems to be due last is left out of the next search.
            page = self.first_pages.last
            due = max(self.first_pages.reached_at(page, directory, host, now, now), now)
            self.leave(page, now)
            self.withhold(page, due)
            return -1
        # While the crawl is calm, due pages are taken in any order.
        if due > now or not _is_calm(self.tables, self.controller, host, due, now):
            self._set_key(directory, due, now)
        return page if self.tables.host_rows[host].root == directory else -1

    def _first_by_value(
        self, directory: cython.int, host: cython.int, due: cython.double, now: cython.double
    ) -> cython.int:
        """Postpone a host's first directory, which has no due page. Return the page of the directory that is worth most.

        Return -1 if another directory is first now. `due` is the deadline of the page that is due first.
        """
        page: cython.int = self.first_pages.find_ripest(directory, self.controller.revisit, now)
        wake: cython.double = now + 0.5 * (due - now)
        if self.first_pages.due <= due:
            self.first_pages.due = due
        elif self.tables.wake_heaps.holds(directory):
            self.postponed = self.tables.wake_heaps.move(self.postponed, directory, wake)
        else:
            self.postponed = self.tables.wake_heaps.insert(self.postponed, directory, wake)
        self._set_key(directory, self.first_pages.due, now)
        return page if self.tables.host_rows[host].root == directory else -1

    def _verify(self, page: cython.int, host: cython.int, now: cython.double) -> cython.bint:
        """Compare the key of a host's first page with the page's value, and correct the key.

        Return whether the page is still the first of its host.
        """
        self.checks += 1
        crawled: cython.double = self.tables.crawled[page]
        elapsed: cython.double = max(now - crawled, 0.0)
        if self.tables.states[page] & (EXPLORED | FAILED | AWAY):
            return True
        if elapsed >= self.tables.max_age(page):
            return True
        self.deadlines.assign(page, host, now)
        n: cython.double = self.deadlines.signals_of(host, self.tables.rows[page].signals)
        self.deadlines.stood, self.deadlines.stood_at = page, now
        self.deadlines.stood_worth = self.deadlines.ratio(page, host, elapsed, n, now)
        worth: cython.double = self.deadlines.stood_worth
        before: cython.double = self.tables.page_heaps.nodes[page].key
        after: cython.double
        if worth >= STANDS and (
            self.deadlines.policy != BY_VALUE
            or _is_calm(self.tables, self.controller, host, self.first_pages.due, now)
        ):
            return True
        if (
            worth < STANDS
            and self.deadlines.clocked
            and self.tables.hubs.row_of(page) < 0
            and not self.deadlines.offsets.is_bounded(page, host)
        ):
            after = self.deadlines.key(page, host, n, now)
            if after - before <= _EARLY_TOLERANCE * (before - crawled):
                return True
            self.move(page, after, now)
            return self.tables.first_of(host) == page
        deadline: cython.double = self.first_pages.due
        due: cython.double
        tolerated: cython.double
        if worth >= STANDS:
            due = self.deadlines.due_by_worth(worth, now)
            tolerated = _KEY_TOLERANCE * (now - crawled)
        else:
            due = self.deadlines.due(page, host, n, elapsed, now)
            tolerated = _EARLY_TOLERANCE * (deadline - crawled)
        if due <= deadline + tolerated:
            return True
        after = self.deadlines.parked_key(page, host, due, now)
        if due > now and after <= before and self.tables.hubs.row_of(page) < 0:
            self.leave(page, now)
            self.withhold(page, due)
            return False
        self.move(page, after, now)
        return self.tables.first_of(host) == page

    def release(self, now: cython.double) -> cython.void:
        """Release hosts, directories and pages whose wait is over."""
        _step: cython.Py_ssize_t
        directory: cython.int
        page: cython.int
        for _step in range(_RELEASES_MAX):
            if self.waiting < 0 or self.tables.host_heaps.nodes[self.waiting].key > now:
                break
            self.place_host(self.waiting, now)
        for _step in range(_RELEASES_MAX):
            directory = self.postponed
            if directory < 0 or self.tables.wake_heaps.nodes[directory].key > now:
                break
            self.postponed = self.tables.wake_heaps.remove(self.postponed, directory)
            if self.first_pages.find(directory, now) >= 0:
                self._set_key(directory, self.first_pages.due, now)
        for _step in range(_RELEASES_MAX):
            page = self.withheld
            if page < 0 or self.tables.page_heaps.nodes[page].key > now:
                break
            self.leave(page, now)
            if self.tables.states[page] & AWAY:
                self._release_away(page, now)
            elif self.tables.states[page] & FAILED:
                self._enter_due(page, now)
            else:
                self.place(page, now)

    def _release_away(self, page: cython.int, now: cython.double) -> cython.void:
        """Make a page that is away due if it may be fetched. Otherwise it waits again."""
        host: cython.int = self.tables.owner(page)
        state: cython.uint = self.tables.states[page]
        if self.absences.may_fetch(page, host, now):
            self._enter_due(page, now)
        elif state & RECALLED == RECALLED:
            self.withhold(page, now + self.absences.recall_pause(host))
        else:
            rung: cython.int = self.absences.next_rung(state, False)
            self.tables.states[page] = AWAY | DOUBLING * rung
            self.withhold(page, now + self.absences.wait_refused(rung))

    def put_back(self, page: cython.int, now: cython.double) -> cython.void:
        """Put a page that was due, but was not fetched, into the right heap. A page that is away stays due."""
        if self.tables.states[page] & AWAY:
            self._enter_due(page, now)
        else:
            self.place(page, now)

    def recall(self, now: cython.double) -> cython.void:
        """Examine the next rows, if there are recalls, and make the pages that are recalled due."""
        _step: cython.Py_ssize_t
        page: cython.int
        state: cython.uint
        rows: cython.Py_ssize_t = self.tables.pages.rows
        moved: cython.int = 0
        for _step in range(min(_RECALL_ROWS, self.absences.unseen)):
            self.absences.hand = self.absences.hand + 1 if self.absences.hand + 1 < rows else 0
            self.absences.unseen -= 1
            page = cython.cast(cython.int, self.absences.hand)
            state = self.tables.states[page]
            if not state & RECALLED or not state & WITHHELD or state & RECALLED == RECALLED:
                continue
            host: cython.int = self.tables.owner(page)
            rung: cython.int = self.tables.host_rows[host].failed_rung
            if state & AWAY:
                rung = self.tables.host_rows[host].away_rung
            if not rung or cython.cast(cython.int, state // DOUBLING) > rung:
                continue
            self.leave(page, now)
            if state & AWAY:
                self.tables.states[page] |= RECALLED
            self.tables.touch(page)
            self.withhold(page, now)
            moved += 1
            if moved == _RELEASES_MAX:
                break
        if self.absences.unseen <= 0:
            self.absences.end_recalls()

    def sweep(self, rows: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Recompute keys, row by row, after a large change of the level.

        The change is measured from the level at which most keys were computed.
        """
        _step: cython.Py_ssize_t
        if self.swept >= self.tables.pages.rows:
            if self.swept_level <= 0.0:
                self.swept_level = self.controller.level
            if (
                self.controller.level < _SWEEP_FROM * self.swept_level
                or self.swept_level < _SWEEP_FROM * self.controller.level
            ):
                self.swept = 0
                self.swept_level = self.controller.level
            return
        for _step in range(min(rows, self.tables.pages.rows - self.swept)):
            self.reschedule(cython.cast(cython.int, self.swept), now)
            self.swept += 1

    def place(self, page: cython.int, now: cython.double) -> cython.void:
        """Put a page that is in no heap into the right heap."""
        if not self._withhold_early(page, now):
            self._enter(page, self.deadlines.key_at(page, self.tables.owner(page), now), now)

    def settle(self, page: cython.int, now: cython.double) -> cython.void:
        """Put a page whose crawl has changed the offset of its directory into the right heap.

        Update the key of the directory, which is exact then, and of its host.
        """
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        if not self._withhold_early(page, now):
            self.tables.insert(page, self.deadlines.key_at(page, self.tables.owner(page), now))
        if self.first_pages.find(directory, now) >= 0:
            self._set_key(directory, self.first_pages.due, now)
        else:
            self.place_directory(directory, now)

    def _withhold_early(self, page: cython.int, now: cython.double) -> cython.bint:
        """Withhold a page that may not be fetched yet; return whether it is withheld."""
        crawled: cython.double = self.tables.crawled[page]
        state: cython.uint = self.tables.states[page]
        if state & RECALLED:
            times: cython.int = state // DOUBLING
            if state & RECALLED == RECALLED:
                self.withhold(page, now)
            elif state & AWAY:
                self.withhold(page, crawled + self.absences.wait(times))
            else:
                self.withhold(page, crawled + self.retry_age * (1 << times >> 1))
            return True
        if now - crawled < self.tables.min_age(page):
            self.withhold(page, crawled + self.tables.min_age(page))
            return True
        return False

    def reschedule(self, page: cython.int, now: cython.double) -> cython.void:
        """Recompute the deadline of a page. A page that does not wait for its deadline is left alone."""
        state: cython.uint = self.tables.states[page]
        if state & (HELD | EXPLORED | FAILED | AWAY):
            return
        if state & WITHHELD or now - self.tables.crawled[page] < self.tables.min_age(page):
            self.leave(page, now)
            self.place(page, now)
            return
        self.move(page, self.deadlines.key_at(page, self.tables.owner(page), now), now)

    def withhold(self, page: cython.int, until: cython.double) -> cython.void:
        self.tables.states[page] |= WITHHELD
        self.withheld = self.tables.page_heaps.insert(self.withheld, page, until)

    def _enter_due(self, page: cython.int, now: cython.double) -> cython.void:
        """Insert a page into its directory's heap. The page is due from now on, or from its own deadline if earlier.

        In a changing neighbourhood, other pages are due again soon after each crawl, and their keys are far before
        now. Without its own deadline, the page would wait behind them.
        """
        host: cython.int = self.tables.owner(page)
        key: cython.double = self.deadlines.key_at(page, host, now)
        self._enter(page, min(now + self.deadlines.offsets.of_page(page, host, now), key), now)

    def _enter(self, page: cython.int, key: cython.double, now: cython.double) -> cython.void:
        """Insert a page into its directory's heap."""
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        self.tables.insert(page, key)
        if self.tables.directory_rows[directory].root == page or self.deadlines.offsets.may_lead(
            directory, key, now
        ):
            self.place_directory(directory, now)

    def leave(self, page: cython.int, now: cython.double) -> cython.void:
        """Remove a page from the heap it is in."""
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        root: cython.int
        if self.tables.states[page] & WITHHELD:
            self.withheld = self.tables.page_heaps.remove(self.withheld, page)
            self.tables.states[page] &= ~WITHHELD & 0xFF
            return
        root = self.tables.directory_rows[directory].root
        first: cython.int = self.tables.page_heaps.remove(root, page)
        self.tables.directory_rows[directory].root = first
        # while the host is busy, the key of the directory is not needed
        if root == page and (first < 0 or not self.tables.host_rows[self.tables.owner(page)].busy):
            self.place_directory(directory, now)

    def move(self, page: cython.int, key: cython.double, now: cython.double) -> cython.void:
        """Change the key of a page in its directory's heap."""
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        root: cython.int = self.tables.directory_rows[directory].root
        before: cython.double = self.tables.page_heaps.nodes[page].key
        first: cython.int = self.tables.page_heaps.move(root, page, key)
        self.tables.directory_rows[directory].root = first
        if (
            root == page
            or first == page
            or (key < before and self.deadlines.offsets.may_lead(directory, key, now))
        ):
            self.place_directory(directory, now)

    def place_directory(self, directory: cython.int, now: cython.double) -> cython.void:
        """Update the key of a directory and of its host.

        The key is computed from the first page of the directory's heap. It is too early if that page was crawled
        lately.
        """
        host: cython.int = self.tables.directory_heaps.nodes[directory].owner
        first: cython.int = self.tables.directory_rows[directory].root
        if first >= 0:
            key: cython.double = self.tables.page_heaps.nodes[first].key
            self._set_key(directory, self.deadlines.offsets.earliest(directory, host, key, now), now)
            return
        if self.tables.directory_heaps.holds(directory):
            self.tables.host_rows[host].root = self.tables.directory_heaps.remove(
                self.tables.host_rows[host].root, directory
            )
        self.place_host(host, now)

    def _set_key(self, directory: cython.int, due: cython.double, now: cython.double) -> cython.void:
        """Note when the first page of a directory is due, and update the directory's host."""
        host: cython.int = self.tables.directory_heaps.nodes[directory].owner
        key: cython.double = due + self.tables.host_rows[host].shift
        root: cython.int = self.tables.host_rows[host].root
        if self.tables.directory_heaps.holds(directory):
            root = self.tables.directory_heaps.move(root, directory, key)
        else:
            root = self.tables.directory_heaps.insert(root, directory, key)
        self.tables.host_rows[host].root = root
        self.place_host(host, now)

    def place_host(self, host: cython.int, now: cython.double) -> cython.void:
        """Put a host into the heap of eligible hosts, the heap of waiting hosts, or neither."""
        root: cython.int = self.tables.host_rows[host].root
        place: cython.int = NOWHERE
        key: cython.double = 0.0
        if root >= 0 and not self.tables.host_rows[host].busy:
            if self.tables.host_rows[host].ready > now:
                place = WAITING
                key = self.tables.host_rows[host].ready
            else:
                place = ELIGIBLE
                key = self.tables.directory_heaps.nodes[root].key - self.tables.host_rows[host].shift
                boost: cython.double = self.tables.host_rows[host].boost
                # the host's first page is worth about `boost` times the common level, so the host comes before
                # other hosts
                if boost > 1.0:
                    ready: cython.double = self.tables.host_rows[host].ready
                    key = min(key, ready) - 0.5 * self.controller.revisit * (boost - 1.0)
        was: cython.int = self.tables.host_rows[host].place
        if was == place:
            if place == ELIGIBLE:
                self.eligible = self.tables.host_heaps.move(self.eligible, host, key)
            elif place == WAITING:
                self.waiting = self.tables.host_heaps.move(self.waiting, host, key)
            return
        if was == ELIGIBLE:
            self.eligible = self.tables.host_heaps.remove(self.eligible, host)
        elif was == WAITING:
            self.waiting = self.tables.host_heaps.remove(self.waiting, host)
        if place == ELIGIBLE:
            self.eligible = self.tables.host_heaps.insert(self.eligible, host, key)
        elif place == WAITING:
            self.waiting = self.tables.host_heaps.insert(self.waiting, host, key)
        self.tables.host_rows[host].place = place

    def _check(self, held: dict[int, tuple[int, bool]]) -> None:
        """Assert that each page, directory and host is in the one place where it belongs; `held` is `Flights.held`."""
        pages, directories = set(self.tables.pages._check()), set(self.tables.directories._check())
        hosts = set(self.tables.hosts._check())
        flying = {page for page, (_, removed) in held.items() if not removed}
        withheld = set(self.tables.page_heaps._check(self.withheld))
        postponed = set(self.tables.wake_heaps._check(self.postponed))
        standing: set[int] = set()
        for directory in directories:
            found = self.tables.page_heaps._check(self.tables.directory_rows[directory].root)
            assert all(self.tables.page_heaps.nodes[page].owner == directory for page in found)
            assert not standing & set(found)
            standing |= set(found)
            first = self.tables.directory_rows[directory].root
            assert self.tables.directory_heaps.holds(directory) == (first >= 0), directory
            assert self.tables.wake_heaps.holds(directory) == (directory in postponed), directory
        assert standing | withheld | flying == pages
        assert len(standing) + len(withheld) + len(flying) == len(pages)
        for page in pages:
            state = self.tables.states[page]
            assert bool(state & WITHHELD) == (page in withheld), page
            assert bool(state & HELD) == (page in flying), page
            assert self.tables.page_heaps.holds(page) == (page not in flying), page
        rows = pages | held.keys()
        roots = sum(self.tables.importance(page) ** 0.5 for page in rows)
        assert abs(self.tables.roots - roots) <= 1e-3 * roots + 1e-9, (self.tables.roots, roots)
        for host in hosts:
            found = self.tables.directory_heaps._check(self.tables.host_rows[host].root)
            assert all(self.tables.directory_heaps.nodes[directory].owner == host for directory in found)
            busy = sum(1 for page in held if self.tables.owner(page) == host)
            assert busy == self.tables.host_rows[host].busy <= 1
            explored = [
                p for p in standing if self.tables.owner(p) == host and self.tables.states[p] & EXPLORED
            ]
            assert len(explored) == self.tables.host_rows[host].exploring, host
            assert self.tables.host_rows[host].boost >= 1.0 and self.tables.host_rows[host].pages == sum(
                1 for p in pages if self.tables.owner(p) == host
            ) + sum(1 for p, (_, removed) in held.items() if removed and self.tables.owner(p) == host)
        eligible, waiting = (
            self.tables.host_heaps._check(self.eligible),
            self.tables.host_heaps._check(self.waiting),
        )
        assert all(self.tables.host_rows[host].place == ELIGIBLE for host in eligible)
        assert all(self.tables.host_rows[host].place == WAITING for host in waiting)
        for host in hosts:
            placed = host in eligible or host in waiting
            assert placed == (
                self.tables.host_rows[host].root >= 0 and not self.tables.host_rows[host].busy
            ), host
            assert placed == (self.tables.host_rows[host].place != NOWHERE)


@cython.cfunc
@cython.exceptval(check=False)
def _is_calm(
    tables: Tables, controller: LevelController, host: cython.int, due: cython.double, now: cython.double
) -> cython.bint:
    """Return whether the order of a host's due pages has hardly any effect. `due` is the deadline of the first one.

    The order has an effect if pages wait for the host: if it has a level of its own, or could not be requested
    at `due`.
    """
    return (
        tables.host_rows[host].boost <= 1.0
        and due >= tables.host_rows[host].ready
        and controller.is_calm(now)
    )
