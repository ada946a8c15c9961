"""The stored end of a crawl, and the report of missing peers, as functions of states and times."""

from crawler.process.exchange.termination import Extent, MissingPeers, Termination
from crawler.splitter.coordination import Progress
from crawler.storage.kv import MemoryStore

IDLE = {"p0": Progress(idle=True)}


def kept() -> MemoryStore:
    """Return a store in which the crawl ended with the extent (5, 6, 7)."""
    change = made(MemoryStore(), (5, 6, 7)).keep()
    return MemoryStore({key: value for key, value in change.operations if value is not None})


def made(store: MemoryStore, standing: tuple[int, ...], now: float = 0.0) -> Termination:
    return Termination(store, lambda: Extent(*standing), 30.0, now)


def test_a_stored_end_applies_after_a_restart_if_nothing_was_done_since() -> None:
    assert not made(MemoryStore(), (0, 0, 0)).holds
    assert made(kept(), (5, 6, 7)).holds
    for behind in ((6, 6, 7), (5, 7, 7), (5, 6, 8)):
        assert not made(kept(), behind).holds


def test_only_new_seeds_void_a_stored_end() -> None:
    change = made(MemoryStore(), (5, 6, 7, 2, 99)).keep()
    store = MemoryStore({key: value for key, value in change.operations if value is not None})
    assert made(store, (7, 6, 7, 2, 99)).holds, "sent again"
    assert not made(store, (5, 6, 7)).holds, "not all seeds have been given yet"
    assert not made(store, (7, 6, 7, 2, 98)).holds, "others"
    assert not made(store, (8, 6, 7, 2, 99)).holds, "a link besides"


def test_the_end_is_recalled_when_peers_are_missing_and_the_rest_idle_for_long() -> None:
    known = made(kept(), (5, 6, 7))
    assert not known.recalls(IDLE, 2, 29.9) and known.recalls(IDLE, 2, 30.0)
    assert not known.recalls(IDLE, 1, 31.0), "no peer is missing"
    assert not known.recalls(IDLE, 2, 60.9) and known.recalls(IDLE, 2, 61.0)
    assert not known.recalls({"p0": Progress(idle=True, outbox=1)}, 2, 100.0)
    assert not known.recalls({"p0": Progress()}, 2, 200.0)


def test_missing_peers_are_reported_once_until_they_change() -> None:
    awaited = MissingPeers(30.0)
    assert not awaited.check(["p1"], True, 0.0) and not awaited.check(["p1"], True, 29.0)
    assert awaited.check(["p1"], True, 30.0) == ["p1"] and not awaited.check(["p1"], True, 90.0)
    assert awaited.check(["p1", "p2"], True, 91.0) == ["p1", "p2"]
    assert not awaited.check(["p1", "p2"], False, 92.0), "there is work"
    assert not awaited.check(["p1"], True, 93.0) and awaited.check(["p1"], True, 123.0) == ["p1"]
    assert not awaited.check([], True, 124.0)
