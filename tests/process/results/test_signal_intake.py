"""Test what happens to signals of changes: each rule of the table, for one process and for two."""

from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.change_signals import SOURCES, Fate, Signalled, source_number
from crawler.config import RefreshConfig
from crawler.frontier.later_tries import PASSING
from crawler.process.committing.portions import PORTION_LINKS
from crawler.process.opening.assembly import make_refresh
from crawler.process.results.signal_intake import URL_CHARS_TOLD
from crawler.records import Blame, Extracted, Link, LinkFlag, Outcome, PageState
from crawler.splitter.inbox import Received
from crawler.storage.commit import Change
from crawler.storage.keys import SIGNALS
from crawler.storage.kv import scan_prefix, unseal
from tests.process.support import Joint, fetch, made, redirect

Open = Callable[..., Joint]
HERE, THERE = "p0", "p1"
HOME, NEW, AWAY = "http://a.org/", "http://a.org/new", "http://elsewhere.example/"
FRESH: dict[str, Any] = {"refresh": {"endless": True, "share": 0.5}}
SIGNAL = LinkFlag.SIGNAL
HOUR = 3600.0


def take(joint: Joint, *urls: str, source: str = "signal") -> tuple[dict[str, tuple[str, str]], Change]:
    """Process and commit signals; return the fate and reason of each URL, and the change."""
    said = Signalled()
    change, _ = made(joint.stages.decisions.signal_intake.decide(urls, source, said))
    joint.stages.commits.commit_now(change)
    return {each.url: (str(each.fate), each.why) for each in said.urls}, change


def by_owner(joint: Joint, count: int = 40) -> dict[str, list[str]]:
    owner, found = joint.stages.topology.partition.owner, {HERE: [], THERE: []}  # type: ignore[var-annotated]
    for n in range(count):
        found[owner(joint.fingerprint(f"http://h{n}.org/"))].append(f"http://h{n}.org/")
    assert all(found.values())
    return found


def heard(joint: Joint, url: str) -> dict[str, int]:
    assert joint.stages.refresh is not None
    told = joint.stages.refresh.views.explain(joint.fingerprint(url), 0.0, joint.clock.now())[
        "signals_by_source"
    ]
    return dict(told)


# -- one process


def test_each_url_has_its_fate(open_joint: Open) -> None:
    joint = open_joint(**FRESH, filter={"exclude": ("/private",)})
    joint.store(HOME)
    said, change = take(
        joint, HOME, "HTTP://A.org:80/#part", NEW, AWAY, HOME + "private",
        HOME + "x" * 9000, "ftp://a.org/", "y:", "y" * 90_000,
    )  # fmt: skip
    assert said == {
        HOME: ("noted", ""),
        NEW: ("queued", ""),
        AWAY: ("out_of_scope", "scope"),
        HOME + "private": ("out_of_scope", "exclude"),
        (HOME + "x" * 9000)[:URL_CHARS_TOLD]: ("refused", "too_long"),
        "ftp://a.org/": ("refused", "scheme"),
        "y:": ("refused", "scheme"),
        ("y" * 90_000)[:URL_CHARS_TOLD]: ("refused", "too_long"),
    }
    fates = {name.removeprefix("signals."): n for name, n in change.counts.items() if "signals." in name}
    assert fates == {"noted": 1, "queued": 1, "out_of_scope": 2, "refused": 4}
    assert heard(joint, HOME) == {"signal": 1}, "a page counts once, even if it was named several times"
    fetch_task = joint.fetch_task()
    assert (fetch_task.url, fetch_task.depth, fetch_task.via, fetch_task.flags) == (NEW, 1, 0, LinkFlag.NEWS)
    assert joint.stages.views.problems() == []


@pytest.mark.parametrize(
    ("status", "outcome"),
    [(302, Outcome.REDIRECT), (0, Outcome.WITHDRAWN), (200, Outcome.FETCHED)],
    ids=["redirect", "withdrawn", "noarchive"],
)
def test_a_signal_for_a_page_that_is_not_refreshed_is_not_noted(
    open_joint: Open, status: int, outcome: Outcome
) -> None:
    joint = open_joint(**FRESH)
    headers = ((b"x-robots-tag", b"noarchive"),) if outcome is Outcome.FETCHED else ()
    joint.store(HOME, status=status, outcome=outcome, headers=headers)
    assert take(joint, HOME)[0] == {HOME: ("not_refreshed", "")}


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (404, Outcome.GONE), (500, Outcome.TEMPORARY), (429, Outcome.HOST_BUSY), (401, Outcome.CLIENT_ERROR),
        (403, Outcome.CLIENT_ERROR), (0, Outcome.CONNECT_ERROR), (0, Outcome.HEADER_TIMEOUT),
    ],
)  # fmt: skip
def test_a_url_without_a_copy_is_fetched_again_after_a_signal(
    open_joint: Open, status: int, outcome: Outcome
) -> None:
    """Without the signal, it would be fetched again later, or never. The signal survives a restart."""
    joint = open_joint(**FRESH)
    joint.store(HOME, status=status, outcome=outcome)
    assert joint.stages.refresh is not None
    assert (joint.fingerprint(HOME) in joint.stages.refresh) is (outcome in PASSING)
    assert take(joint, HOME)[0] == {HOME: ("noted", "")}
    joint.reopen()
    explained = joint.stages.refresh.views.explain(joint.fingerprint(HOME), 0.0, joint.clock.now())
    assert explained["state"] == "away" and explained["fresh"] is None
    assert explained["crawled_at"] == pytest.approx(joint.record(HOME).tried_at), (
        "its wait begins with its last try"
    )
    joint.clock.advance(2.1 * HOUR)
    fetch_task = joint.fetch_task()
    assert fetch_task.url == HOME and fetch_task.flags & LinkFlag.REFRESH
    joint.page(fetch_task, fetch(HOME, b"<p>published at last"))
    assert joint.record(HOME).state is PageState.STORED
    assert joint.stages.views.problems() == []


def test_a_url_that_waits_for_another_try_stays_in_its_queue(open_joint: Open) -> None:
    """If the signal also put it into the schedule, it would be fetched twice."""
    joint = open_joint(**FRESH)
    joint.seeds(HOME)
    for _ in range(joint.stages.config.frontier.tries):
        assert take(joint, HOME)[0] == {HOME: ("queued", "")}
        assert joint.stages.refresh is not None and joint.fingerprint(HOME) not in joint.stages.refresh
        fetch_task = joint.fetch_task()
        assert not fetch_task.flags & LinkFlag.REFRESH
        joint.page(fetch_task, fetch(HOME, status=500, outcome=Outcome.TEMPORARY, blame=Blame.URL))
    assert take(joint, HOME)[0] == {HOME: ("noted", "")}


def test_a_url_that_robots_txt_denied_is_fetched_again_only_if_the_rules_have_changed(
    open_joint: Open,
) -> None:
    """A signal makes no request for a forbidden URL, and none for the robots.txt of its host."""
    joint = open_joint(**FRESH)
    joint.seeds(HOME + "private", HOME + "public")
    joint.robots(b"User-agent: *\nDisallow: /private")
    joint.deny()
    joint.page(joint.fetch_task(), fetch(HOME + "public"))
    assert take(joint, HOME + "private")[0] == {HOME + "private": ("not_refreshed", "")}
    joint.clock.advance(25 * HOUR)  # the stored robots.txt has expired
    joint.robots(b"User-agent: *\nDisallow: /secret")
    assert take(joint, HOME + "private")[0] == {HOME + "private": ("noted", "")}
    fetched = set()
    while HOME + "private" not in fetched:
        fetch_task = joint.fetch_task()
        fetched.add(fetch_task.url)
        joint.page(fetch_task, fetch(fetch_task.url, began=joint.clock.now()))
    assert joint.record(HOME + "private").state is PageState.STORED


def test_a_url_that_always_fails_is_fetched_ever_less_often(open_joint: Open) -> None:
    """A source that signals such a URL again and again cannot have it fetched every hour."""
    joint = open_joint(**FRESH)
    joint.store(HOME, status=500, outcome=Outcome.TEMPORARY)
    tried_at = [joint.record(HOME).tried_at]
    for _ in range(6):
        take(joint, HOME)
        fetch_task = joint.fetch_task()
        failure = {"status": 500, "outcome": Outcome.TEMPORARY, "blame": Blame.URL}
        joint.page(fetch_task, fetch(HOME, began=joint.clock.now(), **failure))
        tried_at.append(joint.record(HOME).tried_at)
    gaps = [later - earlier for earlier, later in pairwise(tried_at)]
    assert gaps == sorted(gaps) and gaps[0] >= HOUR and gaps[-1] > 24 * HOUR


def test_a_known_page_is_noted_even_if_the_filter_rejects_links_to_it(open_joint: Open) -> None:
    """The page was given as a seed, although it does not match filter.include."""
    joint = open_joint(**FRESH, filter={"include": ("/articles/",)})
    joint.store(HOME)
    assert take(joint, HOME, NEW)[0] == {HOME: ("noted", ""), NEW: ("out_of_scope", "include")}


@pytest.mark.parametrize("requisites", [False, True])
def test_requisites_may_lie_out_of_scope(open_joint: Open, requisites: bool) -> None:
    joint = open_joint(**FRESH, crawl={"requisites": requisites})
    joint.store(HOME)
    image = AWAY + "image.png"
    joint.follow(image, fetch(image), flags=LinkFlag.REQUISITE)
    fate = ("noted", "") if requisites else ("out_of_scope", "scope")
    assert take(joint, image, AWAY)[0] == {image: fate, AWAY: ("out_of_scope", "scope")}


@pytest.mark.parametrize("source", ["feed", "indexnow:a.org", "nobody"])
def test_a_signal_counts_for_its_source(open_joint: Open, source: str) -> None:
    joint = open_joint(**FRESH)
    joint.store(HOME)
    take(joint, HOME, source=source)
    assert heard(joint, HOME) == {source.partition(":")[0] if source != "nobody" else "other": 1}


def test_signals_survive_a_restart(open_joint: Open) -> None:
    joint = open_joint(**FRESH)
    joint.store(HOME)
    take(joint, HOME, source="websub:hub")
    again = make_refresh(
        joint.stages.context, joint.stages.pages, joint.stages.robots, joint.stages.fingerprinter
    )
    again.open(joint.stages.store, joint.stages.pages.stored_records, joint.clock.now())
    assert again.views.explain(joint.fingerprint(HOME), joint.clock.now(), joint.clock.now())[
        "signals_by_source"
    ] == {"websub": 1}


def test_many_urls_are_taken_in_portions(open_joint: Open) -> None:
    joint = open_joint(crawl={"scope": "any"})
    urls = [f"{HOME}{n}" for n in range(2 * PORTION_LINKS + 1)]
    said = Signalled()
    change, pauses = made(joint.stages.decisions.signal_intake.decide([*urls, *urls[:5]], "signal", said))
    assert pauses == 3 and said.queued == len(urls) == len(change.links) and len(said.urls) == 100


# -- two processes


def test_a_url_of_another_process_goes_to_its_owner(open_joint: Open) -> None:
    joint = open_joint(names=(HERE, THERE), crawl={"scope": "any"}, filter={"exclude": ("private",)})
    urls = by_owner(joint)
    here, there = urls[HERE][0], urls[THERE][0]
    said, change = take(joint, here, there, there, there + "private", source="feed:x")
    assert said == {
        here: ("queued", ""), there: ("sent", THERE), there + "private": ("out_of_scope", "exclude"),
    }  # fmt: skip
    ((owner, (sent,)),) = change.foreign
    assert (owner, sent.url, sent.flags, sent.redirects) == (THERE, there, SIGNAL, source_number("feed"))
    assert joint.stages.outbox.links == 1 and joint.stages.views.problems() == []
    assert take(joint, there)[0] == {there: ("sent", THERE)}, (
        "every signal is sent, even if a link to the URL was sent recently"
    )
    assert joint.stages.outbox.links == 2


def test_a_signal_has_the_owners_bucket_and_a_unique_fingerprint(open_joint: Open) -> None:
    """A compaction of the outbox keeps one link per fingerprint, so each signal needs a fingerprint of its own."""
    joint = open_joint(names=(HERE, THERE), crawl={"scope": "any"})
    url = by_owner(joint)[THERE][0]
    marks = {joint.fingerprint(url)}
    for source in ("sitemap", "feed", "indexnow", "websub", "signal", "headers", "listing", "other"):
        (link,) = take(joint, url, source=source)[1].foreign[0][1]
        marks.add(link.fingerprint)
        assert link.fingerprint >> 48 == joint.fingerprint(url) >> 48
    assert len(marks) == 1 + SOURCES


def received(joint: Joint, *links: Link) -> Change:
    entry = Received(THERE, bytes(8), 1, list(links), 100)
    change, _ = made(joint.stages.decisions.received(entry))
    assert change.received is entry
    change.received = None
    joint.stages.commits.commit_now(change)
    return change


def test_the_owner_decides_about_a_signal_as_if_it_had_received_it_itself(open_joint: Open) -> None:
    joint = open_joint(names=(HERE, THERE), **FRESH)
    own = by_owner(joint)[HERE]
    known, linked = own[0], own[0] + "linked"
    joint.store(known)
    links = [
        Link(joint.fingerprint(url) ^ 5, url, redirects=source_number("indexnow"), flags=SIGNAL)
        for url in (known, own[0] + "new", AWAY)
    ]
    other = Link(1, known, redirects=99, flags=SIGNAL)
    change = received(joint, Link(joint.fingerprint(linked), linked, depth=3), *links, other)
    assert heard(joint, known) == {"indexnow": 1, "other": 1}
    assert [(link.url, link.depth, link.flags) for link in change.links] == [
        (linked, 3, 0),
        (own[0] + "new", 1, LinkFlag.NEWS),
    ]
    assert {name: n for name, n in change.counts.items() if name.startswith(("signals", "splitter"))} == {
        "splitter.signals_heard": 4, "signals.noted": 2, "signals.queued": 1, "signals.out_of_scope": 1,
    }  # fmt: skip
    assert not change.foreign


def test_the_owner_has_a_url_without_a_copy_fetched_again(open_joint: Open) -> None:
    joint = open_joint(names=(HERE, THERE), **FRESH)
    url = by_owner(joint)[HERE][0]
    joint.store(url, status=500, outcome=Outcome.TEMPORARY)
    change = received(joint, Link(joint.fingerprint(url) ^ 5, url, flags=SIGNAL))
    assert change.counts["signals.noted"] == 1 and heard(joint, url) == {"sitemap": 1}
    joint.reopen()
    assert heard(joint, url) == {"sitemap": 1}


def test_links_without_signals_are_taken_unchanged(open_joint: Open) -> None:
    joint = open_joint(names=(HERE, THERE), crawl={"scope": "any"})
    url = by_owner(joint)[HERE][0]
    change = received(joint, Link(joint.fingerprint(url), url, depth=2))
    assert [link.url for link in change.links] == [url]
    assert change.counts == {"urls.received": 1, "urls.to_due": 1}


def test_a_signal_is_never_passed_on_twice(open_joint: Open) -> None:
    """Two processes may disagree about a URL's owner while only one knows that two authorities are equivalent."""
    joint = open_joint(names=(HERE, THERE), **FRESH, crawl={"scope": "any"})
    there = by_owner(joint)[THERE][0]
    change = received(joint, Link(joint.fingerprint(there), there, flags=SIGNAL))
    assert all(not link.flags & SIGNAL for _, links in change.foreign for link in links)


# -- runs without refreshes


def refreshing(joint: Joint, *, on: bool) -> None:
    """Close the process and open it again, with or without refreshes."""
    refresh = RefreshConfig(endless=True, share=0.5) if on else RefreshConfig()
    joint.reopen(replace(joint.stages.config, refresh=refresh))


def test_a_run_without_refreshes_keeps_signals_for_the_next_one_with_them(joint: Joint) -> None:
    """The crawl may never have refreshed pages before. Each signal counts once, also after further runs."""
    joint.store(HOME)
    joint.visit(redirect(HOME + "old", HOME))
    joint.store(HOME + "gone", status=404, outcome=Outcome.GONE)
    old = HOME + "old"
    assert take(joint, HOME, NEW, HOME + "gone")[0] == {
        HOME: ("kept", ""), NEW: ("queued", ""), HOME + "gone": ("kept", ""),
    }  # fmt: skip
    assert take(joint, old, source="headers")[0] == {old: ("kept", HOME)}
    refreshing(joint, on=False)
    take(joint, HOME)
    for _ in range(2):
        refreshing(joint, on=True)
        assert heard(joint, HOME) == {"signal": 2, "headers": 1}
        assert joint.fingerprint(HOME + "gone") in (joint.stages.refresh or ())
        assert not list(scan_prefix(joint.stages.store, SIGNALS))
    assert joint.stages.views.problems() == []


def test_a_page_that_was_kept_fresh_keeps_its_signals_through_a_run_without_refreshes(
    open_joint: Open, tmp_path: Path
) -> None:
    """A kill of the run without refreshes loses none, and at most 15 signals of a source count, as in a schedule."""
    joint = open_joint(**FRESH)
    joint.store(HOME)
    take(joint, HOME)
    refreshing(joint, on=False)
    for _ in range(20):
        take(joint, HOME)
    joint.users.enter_context(closing(joint.killed(tmp_path / "killed" / "p0")))
    assert kept_of(joint, HOME) == 15
    refreshing(joint, on=True)
    assert heard(joint, HOME) == {"signal": 15}


def test_two_signals_of_one_commit_group_are_both_kept(joint: Joint) -> None:
    """The second is decided before the first is in the store."""
    joint.store(HOME)
    decide = joint.stages.decisions.signal_intake.decide
    changes = [made(decide([HOME], "signal", Signalled()))[0] for _ in range(2)]
    for change in changes:
        joint.stages.commits.commit_now(change)
    assert kept_of(joint, HOME) == 2


def test_a_kept_signal_does_not_count_if_its_page_was_fetched_after_it(joint: Joint) -> None:
    joint.clock.advance(HOUR)
    joint.store(HOME)
    fetched_at = joint.record(HOME).fetched_at
    for at, counts in ((fetched_at - 1.0, {}), (fetched_at, {"signal": 1})):
        change = Change()
        joint.stages.changes.take([joint.fingerprint(HOME)], 4, at, change)
        joint.stages.commits.commit_now(change)
        refreshing(joint, on=True)
        assert heard(joint, HOME) == counts
        assert not list(scan_prefix(joint.stages.store, SIGNALS))
        refreshing(joint, on=False)


def test_a_process_keeps_the_signals_that_another_process_has_sent(open_joint: Open) -> None:
    """It does so in any run, so the fate of a signal does not depend on the number of processes."""
    joint = open_joint(names=(HERE, THERE), crawl={"scope": "any"})
    url = by_owner(joint)[HERE][0]
    joint.store(url)
    for number in (2, 4):
        change = received(joint, Link(joint.fingerprint(url) ^ 5, url, redirects=number, flags=SIGNAL))
        assert change.counts["signals.kept"] == 1
        joint.stages.commits.commit_now(change)
    refreshing(joint, on=True)
    assert heard(joint, url) == {"indexnow": 1, "signal": 1}


def kept_of(joint: Joint, url: str) -> int:
    """Return the number of kept signals of the source `signal` about a page."""
    value = joint.stages.store.get(SIGNALS + joint.fingerprint(url).to_bytes(8, "big"))
    assert value is not None
    return int.from_bytes(unseal(SIGNALS, value)[:4], "little") >> 16 & 15


# -- URLs that redirect


def redirected(joint: Joint, url: str, target: str) -> None:
    """Fetch a URL that redirects to a page, and then the page."""
    joint.visit(redirect(url, target))
    joint.store(target)


def test_a_signal_about_a_url_that_redirects_counts_for_its_target_once(open_joint: Open) -> None:
    joint = open_joint(**FRESH)
    old, older, page = HOME + "old", HOME + "older", HOME + "page"
    redirected(joint, old, page)
    joint.visit(redirect(older, old))
    said, _ = take(joint, old)
    assert said == {old: ("noted", page)} and heard(joint, page) == {"signal": 1}
    assert take(joint, older, page, old, old)[0] == {
        older: ("noted", page), page: ("noted", ""), old: ("noted", page),
    }  # fmt: skip
    assert heard(joint, page) == {"signal": 2}, "a notification counts once"
    joint.reopen()
    assert heard(joint, page) == {"signal": 2}
    assert joint.stages.views.problems() == []


def test_a_site_cannot_signal_pages_of_another_site_by_redirecting_to_them(open_joint: Open) -> None:
    """The sender of `crawler signal` may name any URL, so it reaches them."""
    joint = open_joint(**FRESH, crawl={"scope": "any"})
    redirected(joint, HOME + "bait", AWAY)
    assert take(joint, HOME + "bait", source="indexnow:a.org")[0] == {HOME + "bait": ("not_refreshed", "")}
    assert heard(joint, AWAY) == {}
    assert take(joint, HOME + "bait")[0] == {HOME + "bait": ("noted", AWAY)}
    assert heard(joint, AWAY) == {"signal": 1}


def test_redirects_out_of_scope_are_not_followed(open_joint: Open) -> None:
    joint = open_joint(**FRESH)
    joint.store(HOME)
    joint.add(HOME + "out")
    joint.page(joint.fetch_task(), redirect(HOME + "out", AWAY))
    assert take(joint, HOME + "out")[0] == {HOME + "out": ("out_of_scope", "scope")}


def test_a_page_that_has_moved_is_recalled_and_its_target_is_signalled(open_joint: Open) -> None:
    """The redirect may be over, so the page itself is fetched again, too."""
    joint = open_joint(**FRESH)
    joint.store(HOME + "page", HOME + "old")
    joint.clock.advance(1000 * HOUR)
    while joint.record(HOME + "old").state is not PageState.REDIRECTED:
        task = joint.fetch_task()
        moved = task.url == HOME + "old"
        answer = redirect(task.url, "/page") if moved else fetch(task.url, began=joint.clock.now())
        joint.page(task, answer)
    before = heard(joint, HOME + "page").get("signal", 0)
    assert take(joint, HOME + "old")[0] == {HOME + "old": ("noted", HOME + "page")}
    assert heard(joint, HOME + "page") == {"signal": before + 1} and heard(joint, HOME + "old") == {
        "signal": 1
    }


def test_the_owner_of_the_target_hears_of_the_signal(open_joint: Open) -> None:
    joint = open_joint(names=(HERE, THERE), **FRESH | {"crawl": {"scope": "any"}})
    here, there = (by_owner(joint)[name][0] for name in (HERE, THERE))
    joint.visit(redirect(here, there))
    said, change = take(joint, here, there, source="signal")
    assert said == {here: ("sent", THERE), there: ("sent", THERE)}
    ((_, (link,)),) = change.foreign
    assert (link.url, link.depth, link.redirects, link.flags) == (there, 1, source_number("signal"), SIGNAL)
    assert joint.stages.views.problems() == []
    for passes, told in ((4, 1), (5, 0)):
        signal = Link(joint.fingerprint(here) ^ 5, here, passes, 7, redirects=4, flags=SIGNAL)
        change = received(joint, signal)
        links = [link for _, sent in change.foreign for link in sent]
        assert [(link.url, link.depth, link.via) for link in links] == [(there, 5, 7)][:told]


def test_a_date_of_a_url_that_redirects_counts_for_its_target(open_joint: Open) -> None:
    """A sitemap often lists the old URL of a page. If it lists both URLs, the page counts once.

    The date does not count for a page of another host, even of the same site.
    """
    joint = open_joint(**FRESH, crawl={"scope": "any"})
    redirected(joint, HOME + "old", HOME + "page")
    redirected(joint, HOME + "bait", AWAY)
    redirected(joint, HOME + "www", "http://www.a.org/")
    joint.add(HOME + "map")
    task, change, now = joint.fetch_task(), Change(), joint.clock.now()
    for count, paths in ((1, ["/old", "/bait", "/www"]), (2, ["/old", "/page"])):
        dated = [(path, now + 5.0) for path in paths]
        extracted = Extracted(HOME, told_by="sitemap", dated=dated)
        joint.stages.decisions.signal_intake.hear(change, task, extracted, now + 9.0)
        assert heard(joint, HOME + "page") == {"sitemap": count}
    assert heard(joint, AWAY) == heard(joint, "http://www.a.org/") == {}


# -- dates in refetched pages


def test_dates_count_only_for_pages_of_the_same_host(
    open_joint: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    joint = open_joint(**FRESH)
    joint.store(HOME)
    told: list[Any] = []
    monkeypatch.setattr(joint.stages.refresh.changes, "note_dated", lambda *what: told.append(what))
    joint.add(HOME + "map")
    fetch_task = joint.fetch_task()
    extracted = Extracted(
        HOME, told_by="feed", dated=[("/a", 5.0), ("http://b.org/", 6.0), ("http://[", 7.0), ("b", 8.0)]
    )
    change = Change()
    joint.stages.decisions.signal_intake.hear(change, fetch_task, extracted, 9.0)
    assert told == [(fetch_task.fingerprint, [(HOME + "a", 5.0), (HOME + "b", 8.0)], "feed", 9.0, change)]
    joint.stages.decisions.signal_intake._refresh = None
    joint.stages.decisions.signal_intake.hear(change, fetch_task, extracted, 9.0)
    assert len(told) == 1


def test_every_answer_uses_the_names_of_the_fates() -> None:
    assert [str(fate) for fate in Fate] == list(Signalled().counts())
