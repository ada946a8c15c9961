"""Test the admission of links (filter, owner, caches, outbox, trace) with real caches, DUE and filter."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from crawler.process.committing.portions import PORTION_LINKS
from crawler.process.results.admission import LinkContext
from crawler.records import Extracted, Link, LinkFlag
from crawler.splitter.inbox import Received
from crawler.storage.commit import Change
from crawler.storage.keys import EQUIVALENCES, SCOPE_STATE
from crawler.storage.kv import unseal
from crawler.urls.trace import LINK, LINKS_FILE
from tests.process.support import Joint, links_of, made, redirect

HOME = "http://a.org/"
HERE, THERE = ("p0", "p1")
SEED, SCOPE, SITEMAP = LinkFlag.SEED, LinkFlag.SCOPE, LinkFlag.SITEMAP
ANYWHERE: dict[str, Any] = {"crawl": {"scope": "any"}}
OpenJoint = Callable[..., Joint]


def by_owner(joint: Joint, count: int = 4) -> dict[str, list[str]]:
    """For each process, return the home pages of `count` of its hosts."""
    partition, found = joint.stages.topology.partition, {HERE: [], THERE: []}
    for n in range(200):
        url = f"http://h{n}.org/"
        found[partition.owner(joint.fingerprint(url))].append(url)
    return {name: urls[:count] for name, urls in found.items()}


def take(
    joint: Joint,
    hrefs: list[str],
    link_context: LinkContext = LinkContext(),  # noqa: B008
    base: str = HOME,
) -> Change:
    change = Change()
    made(joint.admission.links(change, base, hrefs, link_context))
    return change


# ---- own links ----


def test_a_link_carries_its_context(open_joint: OpenJoint) -> None:
    joint = open_joint(**ANYWHERE)
    change = take(joint, ["/x", "http://b.org/"], LinkContext(3, 77, 2, SITEMAP))
    assert change.links == [
        Link(joint.fingerprint(url), url, 3, 77, 2, SITEMAP) for url in ("http://a.org/x", "http://b.org/")
    ]
    assert not change.foreign


def test_links_are_filtered_and_counted(joint: Joint) -> None:
    joint.seeds(HOME)
    change = Change()
    hrefs = ["/x", "/x", "mailto:y", "http://b.org/", "http://c.org/", "/y?%E4"]
    assert made(joint.admission.links(change, HOME, hrefs, LinkContext()))[0] == 2
    assert change.counts == {
        "urls.links": 6,
        "urls.filtered.scheme": 1,
        "urls.filtered.scope": 2,
        "urls.accepted": 2,
        "urls.to_due": 2,
    }


def test_recently_seen_links_are_cache_hits(open_joint: OpenJoint) -> None:
    joint = open_joint(**ANYWHERE)
    take(joint, ["/x", "/y"])
    change = take(joint, ["/y", "/z", "/x", "/w"])
    assert [link.url for link in change.links] == ["http://a.org/z", "http://a.org/w"]
    assert (change.counts["urls.cache_hits"], change.counts["urls.to_due"]) == (2, 2)


def test_links_that_wait_in_the_due_are_hits_even_if_evicted_from_the_cache(open_joint: OpenJoint) -> None:
    joint = open_joint(cache={"bits": 4}, **ANYWHERE)
    first = take(joint, ["/x"])
    take(joint, [f"/{n}" for n in range(60)])
    change = take(joint, ["/x"])
    assert len(first.links) == 1 and not change.links
    assert change.counts == {"urls.links": 1, "urls.accepted": 1, "urls.cache_hits": 1}


def test_long_lists_come_in_portions(open_joint: OpenJoint) -> None:
    joint = open_joint(**ANYWHERE)
    change = Change()
    portions = joint.admission.portions(
        change, HOME, [f"/{n}" for n in range(2 * PORTION_LINKS + 1)], LinkContext()
    )
    for links in (PORTION_LINKS, 2 * PORTION_LINKS, 2 * PORTION_LINKS + 1):
        next(portions)
        assert len(change.links) == links
    with pytest.raises(StopIteration) as end:
        next(portions)
    assert end.value.value == 2 * PORTION_LINKS + 1


# ---- links to URLs of other processes ----


def test_own_and_foreign_links_are_separated(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, THERE), **ANYWHERE)
    urls = by_owner(joint)
    mixed = [url for pair in zip(urls[HERE], urls[THERE], strict=True) for url in pair]
    change = Change()
    assert made(joint.admission.links(change, HOME, mixed, LinkContext(2, 5, 1, SITEMAP)))[0] == 8
    link_context = (2, 5, 1, SITEMAP)
    assert change.links == [Link(joint.fingerprint(url), url, *link_context) for url in urls[HERE]]
    assert change.foreign == [
        (THERE, [Link(joint.fingerprint(url), url, *link_context) for url in urls[THERE]])
    ]
    assert change.counts == {
        "urls.links": 8,
        "urls.accepted": 8,
        "urls.to_due": 4,
        "urls.to_outbox": 4,
        "splitter.foreign": 4,
    }


def test_foreign_links_sent_recently_are_cache_hits(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, THERE), **ANYWHERE)
    there = by_owner(joint)[THERE]
    take(joint, there[:3])
    change = take(joint, there)
    assert [(peer, [link.url for link in links]) for peer, links in change.foreign] == [(THERE, there[3:])]
    assert change.counts == {
        "urls.links": 4,
        "urls.accepted": 4,
        "urls.cache_hits": 3,
        "urls.to_outbox": 1,
        "splitter.foreign": 4,
        "splitter.cache_hits": 3,
    }
    again = take(joint, there)
    assert not again.foreign and again.counts["splitter.cache_hits"] == 4


def test_a_seed_is_sent_to_its_owner_once_even_if_the_process_restarts(tmp_path: Path) -> None:
    """Seeds that an earlier start has sent are cache hits. The same URLs are still sent as links of pages."""
    appended, hits = [], []
    for places in (slice(0, 2), slice(0, 2), slice(1, 3), slice(0, 4)):
        joint = Joint(tmp_path, names=(HERE, THERE), **ANYWHERE)
        there = by_owner(joint)[THERE]
        hits.append(joint.seeds(*there[places]).counts.get("splitter.cache_hits", 0))
        appended.append(joint.stages.outbox.appended)
        joint.close()
    assert (appended, hits) == ([2, 2, 3, 4], [0, 2, 1, 3])
    joint = Joint(tmp_path, names=(HERE, THERE), **ANYWHERE)
    assert len(take(joint, there).foreign[0][1]) == 4
    joint.close()


# ---- links from other processes ----


def received(joint: Joint, *links: Link) -> Received:
    return Received(THERE, bytes(8), 1, list(links), 100)


def link(joint: Joint, url: str, **values: Any) -> Link:
    return Link(joint.fingerprint(url), url, **values)


def test_received_links_go_to_the_due_unchanged(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, THERE), **ANYWHERE)
    here = by_owner(joint)[HERE]
    take(joint, here[:1])
    entry = received(joint, *[link(joint, url, depth=4, via=9, redirects=1, flags=SITEMAP) for url in here])
    change, pauses = made(joint.stages.decisions.received(entry))
    assert change.received is entry and pauses == 1
    assert change.links == entry.links[1:]
    assert change.counts == {"urls.received": 4, "urls.cache_hits": 1, "urls.to_due": 3}


def test_a_long_entry_is_taken_in_portions(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, THERE), **ANYWHERE)
    entry = received(joint, *[link(joint, f"{HOME}{n}") for n in range(PORTION_LINKS + 1)])
    change, pauses = made(joint.stages.decisions.received(entry))
    assert pauses == 2 and change.links == entry.links
    assert made(joint.stages.decisions.received(received(joint)))[1] == 0


def test_received_links_take_the_keys_that_are_known_here(open_joint: OpenJoint) -> None:
    """The sender may not know that two authorities are equivalent.

    A link that already has the right key is unchanged.
    """
    joint = open_joint(names=(HERE, THERE), **ANYWHERE)
    before = link(joint, "http://a.org/x", depth=2, via=3)
    prove(joint)
    change, _ = made(joint.stages.decisions.received(received(joint, before)))
    assert change.links == [
        Link(joint.fingerprint("https://a.org/x"), "http://a.org/x", 2, 3)
    ] and change.links != [before]


def prove(joint: Joint) -> Change:
    """Prove that http://a.org is equivalent to https://a.org."""
    change = Change()
    for n in range(5):
        assert not change.operations
        joint.stages.decisions.knowledge.redirected(change, redirect(f"{HOME}{n}", f"https://a.org/{n}"))
    return change


# ---- the scope ----


def notices(change: Change) -> dict[str, list[str]]:
    """Map each peer to the notices of new scope that it gets: a list of URLs."""
    assert all(link.flags == SCOPE for _, links in change.foreign for link in links)
    return {peer: [link.url for link in links] for peer, links in change.foreign}


def stored(change: Change, key: bytes) -> Any:
    values = [value for name, value in change.operations if name == key]
    assert len(values) == 1, change.operations
    return msgspec.json.decode(unseal(key, values[0] or b""))


def test_seeds_widen_the_scope_and_are_links_like_any_other(joint: Joint) -> None:
    change, _ = made(joint.admission.seeds([HOME + "x", "http://b.org/"]))
    assert links_of(change) == [("http://a.org/x", 0, 0, SEED), ("http://b.org/", 0, 0, SEED)]
    assert {link.via for link in change.links} == {0}
    assert change.counts == {"urls.seeds": 2, "urls.links": 2, "urls.accepted": 2, "urls.to_due": 2}
    assert stored(change, SCOPE_STATE) == {"kind": "host", "entries": ["a.org", "b.org"]}
    assert not made(joint.admission.seeds([HOME]))[0].operations, "the seed did not widen the scope"
    assert joint.admission.in_scope("http://b.org/y") and not joint.admission.in_scope("http://c.org/")


@pytest.mark.parametrize("credentials", [False, True])
def test_only_the_hosts_of_seeds_may_get_credentials(joint: Joint, credentials: bool) -> None:
    joint.stages.decisions.knowledge._credentials = credentials
    made(joint.admission.seeds([HOME + "x"]))
    joint.admission.spread(Change(), HOME, "http://b.org/", LinkFlag.REDIRECT)
    assert joint.admission.in_scope("http://b.org/")
    urls = (HOME, "http://b.org/", "http://c.org/")
    assert [joint.stages.decisions.knowledge.trusts(url) for url in urls] == [credentials, False, False]


def test_peers_are_told_by_which_urls_the_scope_has_grown(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, "p1", "p2"))
    seeds = [HOME, HOME + "x", "http://b.org/"]
    change = Change()
    joint.stages.decisions.knowledge.spread(change, seeds)
    told = [HOME, "http://b.org/"]
    assert notices(change) == {"p1": told, "p2": told}
    assert change.counts == {"splitter.scope_told": 4}
    assert change.foreign[0][1] is not change.foreign[1][1], "each peer has its own list"
    again = Change()
    joint.stages.decisions.knowledge.spread(again, seeds)
    assert not again.foreign and not again.counts and not again.operations


def test_a_notice_is_not_taken_for_the_link_itself(open_joint: OpenJoint) -> None:
    """A compaction of the outbox keeps only one of two entries with equal fingerprints.

    Therefore, the fingerprint of a notice differs from that of the link, but is in the same bucket.
    """
    joint = open_joint(names=(HERE, THERE))
    change = Change()
    joint.stages.decisions.knowledge.spread(change, [HOME])
    (told,) = change.foreign[0][1]
    own = joint.fingerprint(HOME)
    assert told.fingerprint != own and told.fingerprint >> 48 == own >> 48
    assert told.fingerprint & (1 << 48) - 1 == ~own & (1 << 48) - 1


def test_a_peer_that_lost_the_scope_is_told_all_of_it(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, THERE))
    made(joint.admission.seeds([HOME, "http://b.org/x"]))
    change = Change()
    joint.stages.decisions.knowledge.announce(change, [THERE])
    assert notices(change) == {THERE: [HOME, "http://b.org/"]}
    nothing = Change()
    open_joint(names=(HERE, THERE)).stages.decisions.knowledge.announce(nothing, [THERE])
    assert not nothing.foreign and not nothing.counts


def test_notices_widen_the_scope_and_are_no_links(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, THERE))
    here = by_owner(joint)[HERE]
    entry = received(
        joint, link(joint, HOME, flags=SCOPE), link(joint, here[0]), link(joint, HOME, flags=SCOPE)
    )
    change, _ = made(joint.stages.decisions.received(entry))
    assert [each.url for each in change.links] == here[:1]
    assert change.counts == {"splitter.scope_heard": 2, "urls.received": 1, "urls.to_due": 1}
    assert stored(change, SCOPE_STATE)["entries"] == ["a.org"]
    assert not change.foreign, "the sender of the notice has told all processes"
    assert joint.admission.in_scope(HOME)


@pytest.mark.parametrize(
    ("location", "widened"),
    [("http://b.org/x", True), ("//b.org/", True), ("/x", False), ("mailto:b", False), ("http://[", False),
     ("http://b.org/a/a/a/a/a/a/a/a/", False)],
)  # fmt: skip
def test_the_accepted_redirect_target_of_a_seed_is_in_scope(
    open_joint: OpenJoint, location: str, widened: bool
) -> None:
    joint = open_joint(names=(HERE, THERE))
    made(joint.admission.seeds([HOME]))
    change = Change()
    joint.admission.spread(change, HOME, location, LinkFlag.REDIRECT)
    assert joint.admission.in_scope("http://b.org/") == widened
    assert bool(change.operations) == bool(change.foreign) == widened


# ---- equivalences ----


def test_a_proven_equivalence_is_stored(joint: Joint) -> None:
    assert stored(prove(joint), EQUIVALENCES) == {"http://a.org": "https://a.org"}
    nothing = Change()
    joint.stages.decisions.knowledge.redirected(nothing, redirect(HOME, "http://["))
    assert not nothing.operations


# ---- the trace ----


def crosses(joint: Joint) -> list[bool]:
    """Return one bool per logged link: True if the link goes to another process."""
    trace, joint.stages.trace = joint.stages.trace, None
    assert trace is not None
    trace.close()
    folder = next(path for path in (joint.stages.directory / "trace").iterdir())
    return (np.fromfile(folder / LINKS_FILE, LINK) & np.uint64(1)).astype(bool).tolist()


@pytest.mark.parametrize("repeats", [False, True])
def test_the_trace_holds_own_and_foreign_links_in_order(open_joint: OpenJoint, repeats: bool) -> None:
    joint = open_joint(names=(HERE, THERE), crawl={"scope": "any", "trace": True})
    urls = by_owner(joint, 2)
    mentions = [urls[HERE][0], urls[THERE][0], "mailto:x", urls[THERE][0], urls[HERE][1]]
    page = Extracted(HOME, hrefs=mentions[:2], repeats=mentions if repeats else [])
    joint.seeds(urls[HERE][0])
    fetch_task = joint.fetch_task()
    list(joint.admission.log(fetch_task, page))
    assert crosses(joint) == ([False, True, True, False] if repeats else [False, True])


def test_the_trace_of_a_process_alone_has_no_cross_links(open_joint: OpenJoint) -> None:
    joint = open_joint(crawl={"scope": "any", "trace": True})
    joint.seeds(HOME)
    fetch_task = joint.fetch_task()
    list(joint.admission.log(fetch_task, Extracted(HOME, hrefs=["/x", "/y"], encoding="windows-1252")))
    assert crosses(joint) == [False, False]


def test_a_trace_pauses_between_portions(open_joint: OpenJoint) -> None:
    """If the 20,000 links of a page were judged and logged in one turn, they would block the event loop."""
    joint = open_joint(crawl={"scope": "any", "trace": True})
    joint.seeds(HOME)
    links = [f"/{n}" for n in range(5 * PORTION_LINKS)]
    assert len(list(joint.admission.log(joint.fetch_task(), Extracted(HOME, hrefs=links)))) == 5
    assert len(crosses(joint)) == len(links)


def test_without_a_trace_nothing_is_logged(joint: Joint) -> None:
    joint.seeds(HOME)
    list(joint.admission.log(joint.fetch_task(), Extracted(HOME, hrefs=["/x"])))
    assert not (joint.stages.directory / "trace").exists()


# ---- the counters ----


def test_the_counter_equations_always_hold(open_joint: OpenJoint) -> None:
    joint = open_joint(names=(HERE, THERE), cache={"bits": 4}, **ANYWHERE)
    urls = by_owner(joint, 30)
    joint.seeds(*urls[HERE][:3], *urls[THERE][:3])
    for n in range(20):
        hrefs = urls[HERE][n : n + 9] + urls[THERE][n : n + 5] + ["mailto:x"]
        joint.stages.commits.commit_now(take(joint, hrefs))
    joint.stages.commits.commit_now(Change())
    assert not joint.stages.views.problems()


def test_learned_state_survives_a_restart(tmp_path: Path) -> None:
    """The scope and the equivalences that were proven survive a restart."""
    first = Joint(tmp_path)
    first.seeds(HOME)
    first.stages.commits.commit(prove(first))
    first.close()
    second = Joint(tmp_path)
    assert second.admission.in_scope(HOME)
    assert second.fingerprint("http://a.org/x") == second.fingerprint("https://a.org/x")
    second.close()
