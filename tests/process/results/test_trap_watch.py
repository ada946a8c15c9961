"""Test that an endless part of a site is warned about once, and that ordinary sites are not. The stages are real."""

import doctest
import logging
from collections.abc import Callable, Iterable

import pytest

from crawler.admin.status import Status
from crawler.cli.inspect import _traps
from crawler.process.answering.commands import Commands
from crawler.process.results import trap_watch as module
from crawler.process.results.trap_watch import PLACES_MAX, stored_places
from crawler.records import Extracted
from crawler.storage.commit import Change
from tests.process.support import Joint, fetch, redirect

HOME = "http://a.org/"
DEEP = {"traps": {"chain_warned": 20}}
ANYWHERE = {**DEEP, "crawl": {"scope": "any", "depth": 99}}
OpenJoint = Callable[..., Joint]


def test_examples() -> None:
    assert doctest.testmod(module) == (0, 2)


def crawl(joint: Joint, pages: int, links: Callable[[str], Iterable[str]]) -> None:
    """Fetch `pages` pages. `links(url)` returns the links of a page."""
    for _ in range(pages):
        fetch_task = joint.fetch_task()
        found = Extracted(fetch_task.url, hrefs=list(links(fetch_task.url)))
        joint.page(fetch_task, fetch(fetch_task.url, b"page %d" % fetch_task.fingerprint), found)
        flush(joint)


def flush(joint: Joint) -> None:
    """Flush the new links to the frontier."""
    joint.clock.advance(60.0)
    joint.stages.commits.commit_now(Change())


def calendar(url: str) -> list[str]:
    """Return the links of an endless calendar below /events/, with a query."""
    day = int(url.rpartition("=")[2]) if "=" in url else 0
    return [f"/events/day?date={1000 + day % 1000 + 1}"]


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "may be endless" in record.getMessage()]


def test_an_endless_calendar_is_warned_about_once(
    open_joint: OpenJoint, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING, logger="crawler")
    joint = open_joint(**DEEP)
    joint.seeds(HOME)
    crawl(joint, 19, calendar)
    assert not warned(caplog)
    crawl(joint, 60, calendar)
    place = "http://a.org/events/day?"
    (said,) = warned(caplog)
    assert (
        said.startswith(f"{place} may be endless:")
        and "20 links in a row" in said
        and "filter.exclude" in said
    )
    assert stored_places(joint.stages.store) == [place]
    joint.reopen()
    crawl(joint, 30, calendar)
    assert len(warned(caplog)) == 1, "the warning is stored"


def test_the_status_names_the_place_also_at_rest(open_joint: OpenJoint) -> None:
    joint = open_joint(**DEEP)
    joint.seeds(HOME)
    crawl(joint, 40, calendar)
    status = Commands(joint.stages, joint.stages.commits.commit_now).status()
    assert status.traps == ["http://a.org/events/day?"] and Status.of(status.plain()).traps == status.traps
    assert status.traps[0] in _traps(status.traps)[0]
    assert _traps([]) == [] and "2 more" in _traps(["a", "b", "c", "d", "e"])[0]


def test_a_calendar_with_redirects_and_days_in_the_path(open_joint: OpenJoint) -> None:
    joint = open_joint(**DEEP)
    joint.seeds(HOME)
    for number in range(60):
        fetch_task = joint.fetch_task()
        if number % 2:
            joint.page(fetch_task, redirect(fetch_task.url, f"/cal/2026/{number}/"))
        else:
            found = Extracted(fetch_task.url, hrefs=[f"/cal/{1000 + number}/next"])
            joint.page(fetch_task, fetch(fetch_task.url, b"page %d" % fetch_task.fingerprint), found)
        flush(joint)
    assert stored_places(joint.stages.store) == ["http://a.org/cal/"]


def test_two_traps_of_a_host_are_both_named(open_joint: OpenJoint) -> None:
    joint = open_joint(**DEEP)
    joint.seeds(HOME + "a/0", HOME + "b/0")
    crawl(joint, 80, lambda url: [f"{url.rpartition('/')[0]}/{int(url.rpartition('/')[2]) + 1}"])
    assert sorted(stored_places(joint.stages.store)) == ["http://a.org/a/", "http://a.org/b/"]


@pytest.mark.parametrize(
    ("links", "settings"),
    [
        (lambda url: [f"/page/{n}" for n in range(60)], DEEP),  # a directory of many pages
        (lambda url: [f"{url}l/", f"{url}r/"], DEEP),  # a tree
        (lambda url: [f"http://{'c' if 'b.org' in url else 'b'}.org/{len(url) * 'x'}"], ANYWHERE),
        (calendar, {"traps": {"chain_warned": 0}}),
        (calendar, {"traps": {"chain_warned": 60}}),
    ],
    ids=["wide", "tree", "two hosts", "switched off", "short"],
)
def test_other_sites_are_not_warned_about(
    open_joint: OpenJoint, links: Callable[[str], list[str]], settings: dict[str, object]
) -> None:
    joint = open_joint(**settings)
    joint.seeds(HOME)
    crawl(joint, 50, links)
    assert stored_places(joint.stages.store) == []


def test_the_number_of_places_is_bounded(open_joint: OpenJoint, monkeypatch: pytest.MonkeyPatch) -> None:
    assert PLACES_MAX == 100
    monkeypatch.setattr(module, "PLACES_MAX", 1)
    joint = open_joint(**DEEP)
    joint.seeds(HOME + "a/0", HOME + "b/0")
    crawl(joint, 80, lambda url: [f"{url.rpartition('/')[0]}/{int(url.rpartition('/')[2]) + 1}"])
    assert len(stored_places(joint.stages.store)) == 1
