# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Decides when pages that are *away* are fetched again. A page is away if it is gone, moved or denied.

    goes away ──► 1 h ──► 3 h ──► 9 h ──► 27 h ──► 3.3 d ──► 10 d ──► 30 d ──► 30 d ...     (`wait`)
                     each fetch needs the budget, and a host gets few of them                (`may_fetch`)
    is back   ──► the pages of its host that are away no longer than it was: recalled        (`note_return`)

`frontier/refresh/README.md`, "Rules" (rule 9), states the rules. The number of waits of a page so far is its
*rung*. It is stored, and the waits are computed from it. A page that was away shortly before begins on a
higher rung.

*Budget.* Fetches of pages that are away and that find them still away are at most `_SHARE` of all fetches. Each
fetch of any page earns a share of a fetch. A page needs as many earned fetches as its rung, so pages that have
just gone away come first. A page that may not be fetched when its wait is over climbs to the next rung, and waits
again (`wait_refused`).

*Recall.* The pages of a host whose rung is at most one higher than that of a page that is back went away in
the same outage, or after it began, so they are recalled. Each page that is back allows `_CREDIT` fetches of
recalled pages, and each page that is still away takes back `_DEBIT`. Without this credit, recalled pages need
the budget.
"""

import cython
from cython.cimports.crawler.frontier.refresh.tables import AWAY, DOUBLING, RECALLED, UNSTEADY, Tables

RUNGS = 7  # the number of different waits; a page's state has three bits for its rung
_UNSTEADY_RUNG = cython.declare(cython.int, 3)  # the first rung of a page that was away shortly before
# The highest rung of a denied page. Its wait is just longer than a day, so each probe reads robots.txt again.
_DENIED_RUNG = cython.declare(cython.int, 4)
_SHARE = cython.declare(cython.double, 0.01)  # maximum share of fetches that find pages still away
_SAVED_MAX = cython.declare(cython.double, 8.0)  # maximum number of fetches saved up; at least RUNGS
# Number of pages of a host that are fetched in the time of one wait. They stand for all pages of their outage.
_PROBES = cython.declare(cython.double, 8.0)
# While all answers of a host are absences, the time between two of these fetches is this part of the outage so far.
_OUTAGE_PART = cython.declare(cython.double, 0.5)
# After this many absences in a row, the host has an outage, and its pages may use up to `_SAVED_MAX` fetches that are
# not earned yet.
_OUTAGE_LEAST = cython.declare(cython.int, 3)
_CREDIT = cython.declare(cython.int, 2)
_DEBIT = cython.declare(cython.int, 4)
_CREDIT_MAX = cython.declare(cython.int, 64)
# a recalled page that may not be fetched yet waits for this part of the first wait
_RECALL_PAUSE = cython.declare(cython.double, 1.0 / 64.0)
# the fractional part of the golden ratio; its multiples, modulo 1, fill the range from 0 to 1 evenly
_GOLDEN = cython.declare(cython.double, 0.6180339887498949)
# maximum number of pauses of recalled pages of a host that end in the time of the shortest pause
_PAUSES = cython.declare(cython.double, 256.0)


class Absences:
    """The waits of pages that are away, the budget of their fetches, and the recalls.

    `saved` is the number of fetches that the budget allows. `unseen` is the number of rows that a recall has not
    examined yet, and `hand` the last row that was examined. `recalling` lists the hosts with a recall.
    """

    def __init__(self, tables: Tables, retry_age: float, gone_age: float) -> None:
        self.tables = tables
        self._first = min(retry_age, gone_age) or gone_age
        self._longest = gone_age
        self._factor = (gone_age / self._first) ** (1.0 / (RUNGS - 1)) if self._first > 0.0 else 1.0
        self.saved = _SAVED_MAX
        self.unseen = self.hand = 0
        self.recalling: list = []
        self._turn = 0.0

    def wait(self, rung: cython.int) -> cython.double:
        """Return the time that a page on this rung waits."""
        return min(self._first * self._factor ** max(rung - 1, 0), self._longest)

    def wait_refused(self, rung: cython.int) -> cython.double:
        """Return the time that a page waits on this rung if it has climbed there without a fetch.

        The time is different at each call, between half of the wait and the whole. With equal waits, the page of a
        host whose wait ends first would be fetched each time, and the others would always be refused.
        """
        self._turn += _GOLDEN
        if self._turn >= 1.0:
            self._turn -= 1.0
        return self.wait(rung) * (0.5 + 0.5 * self._turn)

    def rung_of(self, wait: cython.double) -> cython.int:
        """Return the first rung whose wait is at least as long, or the last rung."""
        rung: cython.int = 1
        while rung < RUNGS and self.wait(rung) < wait:
            rung += 1
        return rung

    def recall_pause(self, host: cython.int) -> cython.double:
        """Return the time that a recalled page of the host waits if it may not be fetched yet.

        It grows with the host, so the number of pages of a host whose pause ends in a second has a bound.
        """
        return self._first * _RECALL_PAUSE * max(self.tables.host_rows[host].pages / _PAUSES, 1.0)

    def next_rung(self, state: cython.uint, denied: cython.bint) -> cython.int:
        """Return the rung of a page that a fetch found away; `state` is its state before."""
        highest: cython.int = _DENIED_RUNG if denied else RUNGS
        if state & AWAY:
            return min(cython.cast(cython.int, state // DOUBLING) + 1, highest)
        return min(_UNSTEADY_RUNG, highest) if state & UNSTEADY else 1

    def note_take(self) -> cython.void:
        """Count a fetch of any page."""
        self.saved = min(self.saved + _SHARE, _SAVED_MAX)

    def may_fetch(self, page: cython.int, host: cython.int, now: cython.double) -> cython.bint:
        """Return whether a page that is away, and whose wait is over, may be fetched. If so, charge the budget."""
        state: cython.uint = self.tables.states[page]
        if self.tables.host_rows[host].ready > now + self._first:
            return False
        if state & RECALLED == RECALLED:
            if not self.tables.host_rows[host].credit and self.saved < 1.0:
                return False
            self.tables.host_rows[host].credit -= self.tables.host_rows[host].credit > 0
        else:
            rung: cython.int = state // DOUBLING
            spacing: cython.double = self.wait(rung) / _PROBES
            if self.tables.host_rows[host].absences:
                spacing = max(spacing, _OUTAGE_PART * (now - self.tables.host_rows[host].absent_since))
            needed: cython.double = rung
            if self.tables.host_rows[host].absences >= _OUTAGE_LEAST:
                needed -= _SAVED_MAX
            if self.saved < needed or 0.0 <= now - self.tables.host_rows[host].probed < spacing:
                return False
            self.tables.host_rows[host].probed = now
        self.saved -= 1.0
        return True

    def note_absence(self, host: cython.int, state: cython.uint, now: cython.double) -> cython.void:
        """Record that a fetch found a page of the host away; `state` is the state of the page before."""
        if not self.tables.host_rows[host].absences:
            self.tables.host_rows[host].absent_since = now
        if self.tables.host_rows[host].absences < _OUTAGE_LEAST:
            self.tables.host_rows[host].absences += 1
        if state & RECALLED == RECALLED:
            self.tables.host_rows[host].credit = max(self.tables.host_rows[host].credit - _DEBIT, 0)

    def note_answer(self, host: cython.int, now: cython.double) -> cython.void:
        """Record that a page of the host answered well. If this ends an outage, recall the pages of the outage."""
        if self.tables.host_rows[host].absences >= _OUTAGE_LEAST:
            self.add_credit(host)
            self.recall(host, self.rung_of(now - self.tables.host_rows[host].absent_since), 0)
        self.tables.host_rows[host].absences = 0

    def note_return(self, host: cython.int, state: cython.uint) -> cython.void:
        """Record that a page is back, or that its fetch no longer fails; `state` is its state before.

        If the page was neither recalled nor asked for the first time after a failure, recall other pages of its host.
        """
        rung: cython.int = state // DOUBLING
        if state & AWAY:
            self.saved = min(self.saved + 1.0, _SAVED_MAX)
            self.add_credit(host)
        elif rung < 2:
            return
        if state & RECALLED != RECALLED:
            self.recall(host, rung + 1 if state & AWAY else 0, rung + 1)

    def add_credit(self, host: cython.int) -> cython.void:
        """Allow more fetches of recalled pages of the host."""
        self.tables.host_rows[host].credit = min(self.tables.host_rows[host].credit + _CREDIT, _CREDIT_MAX)

    def recall(self, host: cython.int, away_rung: cython.int, failed_rung: cython.int) -> cython.void:
        """Begin to recall the pages of a host that are away or failed, and whose rung is at most the given rung."""
        if not (self.tables.host_rows[host].away_rung or self.tables.host_rows[host].failed_rung):
            self.recalling.append(host)
        self.tables.host_rows[host].away_rung = max(self.tables.host_rows[host].away_rung, away_rung)
        self.tables.host_rows[host].failed_rung = max(self.tables.host_rows[host].failed_rung, failed_rung)
        self.unseen = self.tables.pages.rows

    def end_recalls(self) -> cython.void:
        """Note that all rows were examined."""
        host: cython.int
        for host in self.recalling:
            self.tables.host_rows[host].away_rung = self.tables.host_rows[host].failed_rung = 0
        self.recalling.clear()

    def _check(self) -> None:
        assert self.saved <= _SAVED_MAX
        assert 0 <= self.unseen <= self.tables.pages.rows
        assert self.unseen or not self.recalling
        assert len(set(self.recalling)) == len(self.recalling)
