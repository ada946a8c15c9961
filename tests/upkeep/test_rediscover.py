"""Test that lost URLs are queued again: pages without a copy, waiting links, and links of stored pages."""

from collections.abc import Callable
from typing import Any

import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DamageError
from crawler.pages.captures import pack, record_key
from crawler.process.opening.stages import Stages
from crawler.records import FetchTask, Link, LinkFlag, Outcome, PageRecord, PageState, TaskKind
from crawler.storage.commit import Change
from crawler.storage.keys import SCOPE_STATE, TODO
from crawler.storage.kv import scan_prefix
from crawler.storage.reshard import load_json
from crawler.upkeep import rediscover as module
from crawler.upkeep.rediscover import refind
from tests.process.support import Joint, fetch, redirect

A, B, C = "http://a.org/", "http://a.org/b", "http://b.org/c"
AGAIN = "pages queued to be fetched again for lack of a copy: {}"
FOUND = "forgotten URLs found again in stored pages and waiting links: {}"
Open = Callable[..., Joint]


def known(joint: Joint, url: str, **values: Any) -> int:
    """Record that a page was fetched. Return the fingerprint of the page."""
    fingerprint = joint.fingerprint(url)
    change = Change()
    change.put(record_key(fingerprint), pack(PageRecord(url, PageState.STORED, Outcome.FETCHED, **values)))
    change.count("stored.records")
    change.count("urls.done")
    joint.stages.commits.commit_now(change)
    return fingerprint


def fetch_tasks(joint: Joint, count: int) -> list[FetchTask]:
    return [joint.fetch_task(TaskKind.PAGE) for _ in range(count)]


def queued(joint: Joint) -> int:
    return sum(1 for _ in scan_prefix(joint.stages.store, TODO))


def test_a_page_without_a_copy_is_queued_with_its_original_link(open_joint: Open) -> None:
    joint = open_joint()
    lost = [known(joint, A, depth=3, via=7, redirects=2, flags=LinkFlag.SEED)]
    before = joint.stages.point.counters
    assert (before["urls.done"], before["stored.records"]) == (1, 1)
    assert refind(joint.stages, [*lost, 99], []) == [AGAIN.format(1)]
    assert joint.stages.pages.record(lost[0]) is None
    after = joint.stages.point.counters
    assert (after["urls.done"], after["stored.records"]) == (0, 0)
    (fetch_task,) = fetch_tasks(joint, 1)
    assert (fetch_task.url, fetch_task.fingerprint) == (A, lost[0])
    assert (fetch_task.depth, fetch_task.via, fetch_task.redirects, fetch_task.flags) == (
        3,
        7,
        2,
        LinkFlag.SEED,
    )


def test_a_lost_page_that_already_waits_is_queued_once(open_joint: Open) -> None:
    joint = open_joint()
    lost = [known(joint, A), known(joint, B)]
    joint.add(A)
    assert refind(joint.stages, lost, []) == [AGAIN.format(2)]
    assert queued(joint) == 2
    counters = joint.stages.point.counters
    assert (counters["urls.done"], counters["stored.records"]) == (1, 0), (
        "the page that waited was not counted as done"
    )


def test_nothing_lost_changes_nothing(open_joint: Open) -> None:
    joint = open_joint()
    known(joint, A)
    before = dict(joint.stages.store.scan(b""))
    assert refind(joint.stages, [], []) == []
    assert refind(joint.stages, [99], []) == []
    assert dict(joint.stages.store.scan(b"")) == before


def test_waiting_links_are_queued_if_they_are_new_and_owned(open_joint: Open) -> None:
    joint = open_joint(names=("p0", "p1"))
    urls = [f"http://h{n}.org/" for n in range(8)]
    owner = joint.stages.topology.partition.owner
    own = [url for url in urls if owner(joint.fingerprint(url)) == "p0"]
    assert 1 < len(own) < len(urls)
    links = [Link(joint.fingerprint(url), url, 1) for url in urls]
    assert refind(joint.stages, [], links) == [FOUND.format(len(own))]
    counters = joint.stages.point.counters
    assert (counters["urls.resharded"], counters["urls.to_due"]) == (len(own), len(own))
    assert joint.stages.views.problems() == [] and queued(joint) == len(own)
    assert refind(joint.stages, [], links) == [], "all links are known by now"
    assert queued(joint) == len(own)
    assert counters["urls.to_due"] == joint.stages.point.counters["urls.to_due"]


def taken(stages: Stages, monkeypatch: pytest.MonkeyPatch) -> list[list[Link]]:
    """Read all pages again. Return the portions of links that are queued."""
    portions: list[list[Link]] = []
    monkeypatch.setattr(module, "_queue", lambda due, commits, links: portions.append(list(links)))
    refind(stages, [], [])
    assert portions.pop(0) == [], "no links waited"
    return portions


def visited(joint: Joint, url: str, answer: Any, **values: Any) -> int:
    joint.follow(url, answer, None, **values)
    return joint.fingerprint(url)


def test_links_redirects_and_seeds_are_queued_again(
    open_joint: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Depths are kept.

    The target of a redirect has the depth of its page, and the depth of a link is larger by one.
    """
    joint = open_joint(seeds=[A, C])
    page = visited(joint, A, fetch(A, b'<a href="/b">b</a><a href="x">x</a>'), depth=4)
    moved = visited(joint, B, redirect(B, "http://a.org/moved"), depth=2)
    assert joint.stages.pages.record(joint.fingerprint("http://a.org/robots.txt")) is None
    (links,) = taken(joint.stages, monkeypatch)
    expected = [
        (A, 0, 0, LinkFlag.SEED),
        (C, 0, 0, LinkFlag.SEED),
        (B, 5, page, 0),
        ("http://a.org/x", 5, page, 0),
        ("http://a.org/moved", 2, moved, LinkFlag.REDIRECT),
    ]
    assert links == [
        Link(joint.fingerprint(url), url, depth, via, 0, int(flags)) for url, depth, via, flags in expected
    ]


def spanned(joint: Joint) -> list[str]:
    """Read all pages again. Return the stored scope."""
    refind(joint.stages, [], [])
    state = load_json(joint.stages.store, SCOPE_STATE)
    return [] if state is None else state["entries"]


def test_a_lost_scope_is_rebuilt_from_seeds_and_redirects(open_joint: Open) -> None:
    """The scope of a rebuilt store was once empty, so every link of every page was out of scope."""
    joint = open_joint(seeds=[A])
    visited(joint, A, redirect(A, "http://moved.org/"))
    visited(joint, "http://moved.org/", redirect("http://moved.org/", "http://moved.org/in"))
    # a redirect back to the first page
    visited(joint, "http://moved.org/in", redirect("http://moved.org/in", A))
    visited(joint, "http://link.org/", redirect("http://link.org/", "http://other.org/"))
    assert spanned(joint) == ["a.org", "moved.org"]


@pytest.mark.parametrize(
    ("scope", "places", "entries"),
    [
        ("host", ["a.org", "sub.b.org"], ["a.org", "sub.b.org"]),
        ("domain", ["*.a.org"], ["a.org"]),
        ("host", ["*"], []),
        ("prefix", ["a.org"], []),
    ],
)
def test_a_lost_scope_is_rebuilt_from_the_places_of_all_seeds(
    open_joint: Open, scope: str, places: list[str], entries: list[str]
) -> None:
    """Some seeds are from files and commands. Of these seeds, only the hosts were saved."""
    joint = open_joint(crawl={"scope": scope})
    directory = CrawlDirectory(joint.stages.directory.parent)
    directory.settings.save(joint.stages.config)
    directory.settings.note_places(places)
    assert spanned(joint) == entries


def test_an_existing_scope_is_kept(open_joint: Open) -> None:
    joint = open_joint(seeds=[A])
    joint.seeds(C)
    assert spanned(joint) == ["b.org"]


def test_links_are_queued_in_portions(open_joint: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The links of a billion pages would not fit into memory, so they are queued in portions."""
    monkeypatch.setattr(module, "_LINKS_AT_ONCE", 3)
    joint = open_joint(seeds=[A, C])
    visited(joint, A, fetch(A, b'<a href="/b">b</a>'))
    visited(joint, B, redirect(B, "http://a.org/moved"))
    portions = taken(joint.stages, monkeypatch)
    assert [[link.url for link in each] for each in portions] == [[A, C, B], ["http://a.org/moved"]]


def test_a_crawl_without_seeds_and_pages_has_nothing_to_read(
    open_joint: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert taken(open_joint().stages, monkeypatch) == []


def test_links_owned_by_other_processes_are_skipped(
    open_joint: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [f"http://h{n}.org/" for n in range(8)]
    joint = open_joint(names=("p0", "p1"), seeds=urls)
    owner = joint.stages.topology.partition.owner
    (links,) = taken(joint.stages, monkeypatch)
    assert [link.url for link in links] == [url for url in urls if owner(joint.fingerprint(url)) == "p0"]


def test_an_unreadable_copy_is_skipped(open_joint: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    joint = open_joint(crawl={"scope": "any"})
    for url in (A, B):
        visited(joint, url, fetch(url, b'<a href="/of%s">x</a>' % url[-2:].encode()))
    broken = sorted((joint.fingerprint(url), url) for url in (A, B))[0][1]
    read = joint.stages.pages.read

    def reads(capture: Any) -> Any:
        if capture.url == broken:
            raise DamageError("broken")
        return read(capture)

    monkeypatch.setattr(joint.stages.pages, "read", reads)
    (links,) = taken(joint.stages, monkeypatch)
    (whole,) = {A, B} - {broken}
    assert [link.via for link in links] == [joint.fingerprint(whole)]


def test_requeued_pages_survive_a_power_cut(open_joint: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """The requeued pages must be synced, because the caller will not queue them again."""
    joint = open_joint(seeds=[A])
    lost = known(joint, B)
    changes: list[Change] = []
    commit = joint.stages.commits.commit
    monkeypatch.setattr(
        joint.stages.commits, "commit", lambda change: changes.append(change) or commit(change)
    )
    refind(joint.stages, [lost], [Link(joint.fingerprint(C), C)])
    again, waited, *_ = [change for change in changes if isinstance(change, Change)]
    assert again.sync and waited.sync and [link.url for link in waited.links] == [C]
    spans = [change for change in changes if isinstance(change, Change) and not change.links]
    assert len(spans) >= 2 and all(change.sync for change in spans)
    assert (waited.counts["urls.resharded"], waited.counts["urls.to_due"]) == (1, 1)
