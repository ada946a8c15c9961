"""Test that the queue of a lost process is rebuilt from a peer's archive: each URL once, with its former depth."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from crawler.errors import DamageError, UsageError
from crawler.process.results.sent_seeds import SentSeeds
from crawler.records import Extracted, LinkFlag
from crawler.splitter.inbox import Received
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change
from crawler.storage.keys import SENT_SEED_URLS, SENT_SEEDS
from crawler.storage.kv import scan_prefix
from crawler.upkeep import recover as module
from crawler.upkeep.recover import recover_links
from crawler.urls.fingerprint import Fingerprinter
from tests.process.support import SEED, Joint, fetch, made, redirect

SEEDED, REDIRECTED = LinkFlag.SEED, LinkFlag.REDIRECT
NAMES = ("p0", "p1")


def hosts(name: str, count: int) -> list[str]:
    """Return the names of hosts that a process owns."""
    partition, fingerprinter = Partition.equal_ranges(list(NAMES)), Fingerprinter(SEED)
    found = (f"http://h{n}.org/" for n in range(1000))
    own = [url for url in found if partition.owner(fingerprinter.fingerprint(url)) == name]
    return own[:count]


OWN, LOST = hosts("p0", 3), hosts("p1", 6)


@pytest.fixture
def one(open_joint: Callable[..., Joint]) -> Joint:
    """Return p0 with a page of links, a redirect, and seeds for both processes."""
    joint = open_joint(names=NAMES, crawl={"scope": "any"}, seeds=[OWN[0], LOST[0]])
    pages = {
        OWN[0]: fetch(OWN[0], b"".join(b'<a href="%b">x</a>' % url.encode() for url in [*LOST[:3], OWN[2]])),
        OWN[1]: redirect(OWN[1], LOST[3]),
    }
    joint.seeds(*pages)
    for _ in pages:
        fetch_task = joint.fetch_task()
        joint.page(fetch_task, pages[fetch_task.url], Extracted(base=fetch_task.url))
    return joint


def test_seeds_that_only_the_lost_process_held_are_queued_again(
    one: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The seeds were given by `crawler seed`. They are in no archive, and the peer has confirmed them."""
    one.seeds(LOST[4], OWN[2])
    one.seeds(LOST[5])
    for _ in range(2):  # the disk may be lost again
        (count, problems), changes = recovered(one, monkeypatch)
        assert (count, problems) == (6, [])
        assert {link[0]: link[3] for link in links(changes)}.items() >= {
            LOST[4]: SEEDED,
            LOST[5]: SEEDED,
        }.items()
        monkeypatch.undo()


def test_seeds_that_were_given_to_the_lost_process_itself_are_queued_again(
    open_joint: Callable[..., Joint], monkeypatch: pytest.MonkeyPatch
) -> None:
    """`crawler seed` gave them to their owner. Another process keeps copies, which it gets once.

    The copies of other processes are never links here, and the counters agree.
    """
    lost, here = (open_joint(names=NAMES, me=name, crawl={"scope": "any"}) for name in NAMES)
    seeds = [OWN[0], OWN[1], LOST[0]]
    first = made(lost.admission.seeds(seeds, copied=True))[0]
    ((_, sent), (keeper, copies)) = first.foreign
    assert keeper == "p1" and [each.url for each in sent] == seeds[2:]
    assert [each.url for each in copies] == seeds[:2] and first.counts["splitter.scope_told"] == 2
    lost.commit(first)
    fingerprints = np.array([link.fingerprint for link in first.links], np.uint64)
    assert not SentSeeds(lost.stages.store).take(Change(), seeds[:2], fingerprints, [0, 1])
    received = made(here.admission.received(Received("p0", bytes(8), 1, copies, 100), copies))[0]
    assert not received.links and received.counts["splitter.scope_heard"] == 2
    received.received = None
    here.commit(received)
    (count, problems), changes = recovered(here, monkeypatch, "p0")
    assert (count, problems) == (2, [])
    assert {link[0]: link[3] for link in links(changes, "p0")} == dict.fromkeys(seeds[:2], SEEDED)


def test_seeds_that_an_earlier_version_sent_are_sent_again_at_the_next_start(
    one: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier version stored only the fingerprints of seeds."""
    one.seeds(LOST[4])
    batch = one.stages.store.batch()
    for key, _ in scan_prefix(one.stages.store, SENT_SEED_URLS):
        batch.delete(key)
    one.stages.store.write(batch)
    assert list(scan_prefix(one.stages.store, SENT_SEEDS))
    recovered(one, monkeypatch)
    assert not list(scan_prefix(one.stages.store, SENT_SEEDS))


def recovered(
    joint: Joint, monkeypatch: pytest.MonkeyPatch, lost: str = "p1"
) -> tuple[tuple[int, list[str]], list[Change]]:
    changes: list[Change] = []
    commit = joint.stages.commits.commit_now

    def noted(change: Change) -> None:
        changes.append(change)
        commit(change)

    monkeypatch.setattr(joint.stages.commits, "commit_now", noted)
    return recover_links(joint.stages, lost), changes


def links(changes: list[Change], lost: str = "p1") -> list[tuple[Any, ...]]:
    return [
        (link.url, link.depth, link.via, link.flags)
        for change in changes
        for peer, found in change.foreign
        for link in found
        if peer == lost and not link.flags & LinkFlag.SCOPE
    ]


@pytest.mark.parametrize("lost", ["p0", "p7"])
def test_only_a_peer_can_be_lost(one: Joint, lost: str) -> None:
    with pytest.raises(UsageError, match=f"'{lost}' is not among the processes p0, p1"):
        recover_links(one.stages, lost)


def test_each_seed_link_and_redirect_of_the_lost_process_is_queued_once(
    one: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A seed to which a page links stays a seed. Links that other processes own are not queued."""
    before = one.stages.outbox.links
    (count, problems), changes = recovered(one, monkeypatch)
    assert (count, problems) == (4, []) and len(changes) == 2 and changes[0].sync
    via = {url: one.fingerprint(url) for url in OWN}
    assert links(changes) == [
        (LOST[0], 0, 0, SEEDED),
        (LOST[1], 1, via[OWN[0]], 0),
        (LOST[2], 1, via[OWN[0]], 0),
        (LOST[3], 0, via[OWN[1]], REDIRECTED),
    ]
    assert {n: c for n, c in changes[0].counts.items() if n.startswith("urls.")} == {
        "urls.to_outbox": 4,
        "urls.resharded": 4,
    }
    assert one.stages.outbox.links >= before + 4 and one.stages.views.problems() == []


def test_large_archives_are_queued_in_parts_and_the_scope_is_sent_once(
    one: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_LINKS_AT_ONCE", 1)
    told: list[list[str]] = []
    monkeypatch.setattr(one.stages.decisions.knowledge, "announce", lambda change, peers: told.append(peers))
    (count, _), changes = recovered(one, monkeypatch)
    assert count == 4 and [len(links([change])) for change in changes] == [1, 1, 1, 1, 0, 0]
    assert told == [["p1"]]


def test_a_page_that_cannot_be_read_is_named(one: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(capture: Any) -> Any:
        raise DamageError(f"{capture.url} is broken")

    monkeypatch.setattr(one.stages.pages, "read", broken)
    (count, problems), changes = recovered(one, monkeypatch)
    assert f"{OWN[0]} is broken" in problems and count == 2
    assert [url for url, *_ in links(changes)] == [LOST[0], LOST[3]]


def test_without_seeds_in_the_configuration_links_are_enough(
    open_joint: Callable[..., Joint], monkeypatch: pytest.MonkeyPatch
) -> None:
    joint = open_joint(names=NAMES, crawl={"scope": "any"})
    (count, problems), changes = recovered(joint, monkeypatch)
    assert (count, problems) == (0, []) and links(changes) == [] and len(changes) == 2


def test_confirmations_of_the_lost_process_are_deleted_by_the_last_commit(
    one: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Peers refuse the process until the last commit of its recovery, so an interrupted recovery is repeated."""
    spool = one.stages.outbox.spools["p1"]
    spool.confirmed = replace(spool.confirmed, applied=7)
    epoch, epochs = spool.state.epoch, []
    commit = one.stages.commits.commit_now

    def noted(change: Change) -> None:
        commit(change)
        epochs.append((spool.missing(0), spool.state.epoch != epoch))

    monkeypatch.setattr(one.stages.commits, "commit_now", noted)
    recover_links(one.stages, "p1")
    assert epochs[0] == (7, False) and epochs[-1] == (0, True)
