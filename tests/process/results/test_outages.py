"""Test outages with the real frontier, schedule and page cache, on a virtual clock: when do pages have new copies?"""

from collections.abc import Callable
from typing import Any

import pytest

from crawler.records import Blame, FetchTask, Outcome, PageState, TaskKind
from tests.process.results.test_refreshing import explain, refresh_of
from tests.process.support import Joint, fetch

HOUR = 3600.0
PAGES = 30  # on each of two hosts
# A fetch every 40 s, so that each page is refetched every 40 minutes.
SETTINGS: dict[str, Any] = {"refresh": {"endless": True, "min_age": 0.0}, "crawl": {"rate": 1.0 / 40.0}}
ALLOWED, DENIED = b"User-agent: *\nDisallow: /private\n", b"User-agent: *\nDisallow: /\n"


class Outage:
    """A crawl of two hosts with `pages` pages each. From `began` to `ended`, a.org answers `failing` for each page.

    `got` maps each URL to the instant of its last good answer. `vain` counts the requests for pages that were
    away at their previous request, and still are.
    """

    def __init__(self, joint: Joint, failing: dict[str, Any], length: float, pages: int = PAGES) -> None:
        self.joint, self.failing = joint, failing
        self.began = self.ended = 0.0
        self.got: dict[str, float] = {}
        self.away: set[str] = set()
        self.hit: set[str] = set()
        self.vain = 0
        self.disallows = False
        self.rules_read = 0  # number of answers to requests for the robots.txt of a.org
        urls = [f"http://{host}.org/{number}" for host in "ab" for number in range(pages)]
        joint.seeds(*urls)
        while len(self.got) < len(urls):
            self.step()
        self.began = joint.clock.now() + 2.0 * HOUR
        self.ended = self.began + length

    def step(self) -> None:
        """End the next task of any kind, or wait until there is one."""
        joint, now = self.joint, self.joint.clock.now()
        task = joint.frontier.claim_next(now)
        if task is None:
            wakeup = joint.frontier.next_wakeup(now)
            joint.clock.advance(min(max(wakeup - now, 0.0) if wakeup is not None else 60.0, 60.0))
        elif task.kind is TaskKind.RESOLVE:
            joint.frontier.resolved(
                task, ["127.0.0.1" if task.hostname == "a.org" else "127.0.0.2"], now + 1e9, now
            )
        elif task.kind is TaskKind.ROBOTS:
            body = DENIED if self.disallows and task.hostname == "a.org" else ALLOWED
            self.rules_read += task.hostname == "a.org"
            answer = fetch(task.url, body, content_type="text/plain", began=now)
            joint.commit(joint.results.robots(task, answer, now))
        elif task.kind is TaskKind.DENIED:
            joint.page(task, joint.results.denied(task, now))
            self.away.add(task.url)
        else:
            self._page(task, now)

    def _page(self, task: FetchTask, now: float) -> None:
        if task.hostname == "a.org" and self.began <= now < self.ended:
            self.vain += task.url in self.away
            self.away.add(task.url)
            self.hit.add(task.url)
            self.joint.page(task, fetch(task.url, began=now, **self.failing))
        else:
            self.away.discard(task.url)
            self.got[task.url] = now
            self.joint.page(task, fetch(task.url, b"%f" % now, began=now))

    def run(self, until: float) -> None:
        while self.joint.clock.now() < until:
            self.step()


@pytest.mark.parametrize(
    ("failing", "most"),
    [
        ({"outcome": Outcome.GONE, "status": 404}, 4),
        ({"outcome": Outcome.REDIRECT, "status": 302, "location": "/maintenance"}, 4),
        ({"outcome": Outcome.HOST_BUSY, "status": 503, "blame": Blame.HOST}, 12),
        ({"outcome": Outcome.TEMPORARY, "status": 500, "blame": Blame.URL}, PAGES),
    ],
    ids=["404", "302", "503", "500"],
)
def test_an_hour_after_an_outage_of_an_hour_all_pages_have_new_copies(
    open_joint: Callable[..., Joint], failing: dict[str, Any], most: int
) -> None:
    """`most` is the number of requests that may ask again for a page that has failed in the outage."""
    outage = Outage(open_joint(**SETTINGS), failing, HOUR)
    outage.run(outage.ended)
    assert len(outage.hit) >= (PAGES / 2 if failing["status"] != 503 else 5) and outage.vain <= most
    outage.run(outage.ended + HOUR)
    assert not outage.away
    late = [got - outage.ended for url, got in outage.got.items() if url in outage.hit]
    assert min(late) > 0.0
    assert not outage.joint.stages.views.problems()
    refresh_of(outage.joint)._check()


def test_pages_that_robots_txt_denied_for_days_are_due_when_the_rules_change_back(
    open_joint: Callable[..., Joint],
) -> None:
    """robots.txt is read once a day. Soon after the reading that finds the old rules again, all pages are fetched."""
    pages = 3  # each is refetched every 40 minutes, as with `SETTINGS`
    rare = SETTINGS | {"crawl": {"rate": SETTINGS["crawl"]["rate"] * pages / PAGES}}
    outage = Outage(open_joint(**rare), {}, 0.0, pages)
    outage.disallows = True
    outage.run(outage.began + 5.0 * 24.0 * HOUR)
    assert len(outage.away) == pages
    outage.disallows, changed = False, outage.joint.clock.now()
    joint, outage.rules_read = outage.joint, 0
    while not outage.rules_read and joint.clock.now() < changed + 60.0 * HOUR:
        outage.step()
    assert len(outage.away) == pages
    assert refresh_of(joint).claims.next_wakeup(joint.clock.now()) <= joint.clock.now()
    waits = [explain(joint, url)["deadline"] - joint.clock.now() for url in outage.away]
    assert max(waits) <= HOUR / 60, "all pages are due before the first of them is back"
    while len(outage.away) == pages and joint.clock.now() < changed + 60.0 * HOUR:
        outage.step()
    first = outage.joint.clock.now()
    assert first < changed + 30.0 * HOUR
    outage.run(first + 1.5 * HOUR)
    assert not outage.away


def test_an_outage_survives_a_restart(open_joint: Callable[..., Joint]) -> None:
    """The process ends when the first page is back, and all that it held in memory is lost."""
    outage = Outage(open_joint(**SETTINGS), {"outcome": Outcome.GONE, "status": 404}, HOUR)
    outage.run(outage.ended)
    away = len(outage.away)
    while len(outage.away) == away:
        outage.step()
    outage.joint.reopen()
    outage.run(outage.ended + 2.0 * HOUR)
    assert not outage.away


def test_what_is_said_of_a_page_that_is_away_agrees(open_joint: Callable[..., Joint]) -> None:
    """The last answer was a 404, so no probability says that the copy is current."""
    outage = Outage(open_joint(**SETTINGS), {"outcome": Outcome.GONE, "status": 404}, HOUR)
    outage.run(outage.ended - 60.0)
    joint, now = outage.joint, outage.joint.clock.now()
    url = sorted(outage.away)[0]
    record = joint.record(url)
    assert record.state is PageState.GONE
    known = explain(joint, url)
    assert known["state"] == "away" and known["fresh"] is None
    assert known["waits_for"] == "its next check (it was gone, moved, denied or never found)"
    assert known["deadline"] > now - HOUR
    views = refresh_of(joint).views
    assert views.probability(joint.fingerprint(url), record.fetched_at, now) is None
    outage.run(outage.ended + HOUR)
    fresh = explain(joint, url)["fresh"]
    assert fresh is not None and fresh > 0.0
