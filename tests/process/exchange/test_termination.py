"""Test when the stored end of a crawl applies, and when missing peers are reported."""

from crawler.process.exchange.termination import Extent, MissingPeers, Termination
from crawler.splitter.coordination import Progress
from crawler.splitter.wire import PastEnd
from crawler.storage.kv import MemoryStore

IDLE = {"p0": Progress(idle=True)}
PEERS = {"p1": Progress(idle=True, appended=3, applied=4), "p2": Progress(appended=1)}


def kept() -> MemoryStore:
    """Return the store of a crawl that has recorded its end with `Extent(5, 6, 7)`."""
    change = made(MemoryStore(), (5, 6, 7)).keep(PEERS)
    return MemoryStore({key: value for key, value in change.operations if value is not None})


def made(
    store: MemoryStore, standing: tuple[int, ...], *, limits: str = "", clean: bool = False
) -> Termination:
    return Termination(store, lambda: Extent(*standing, limits=limits), 30.0, 0.0, clean=clean)


def test_a_stored_end_applies_after_a_restart_if_nothing_was_done_since() -> None:
    assert not made(MemoryStore(), (0, 0, 0)).holds
    assert made(kept(), (5, 6, 7)).holds
    for behind in ((6, 6, 7), (5, 7, 7), (5, 6, 8)):
        assert not made(kept(), behind).holds


def test_other_limits_void_a_stored_end_and_peers_heed_it() -> None:
    """Once, processes left too early if the limits were raised after an earlier run had stored its end."""
    raised = made(kept(), (5, 6, 7), limits="2 pages per host")
    assert not raised.holds and raised.past_end is PastEnd.VOID
    known = made(kept(), (5, 6, 7))
    said = IDLE | {"p1": Progress(idle=True, past_end=raised.past_end)}
    assert not known.recalls(said, 3, 100.0) and not known.recalls(said, 3, 500.0)


def test_after_a_clean_end_only_a_peer_that_missed_the_end_recalls_it() -> None:
    """Once, a process that lost contact while its peers left waited forever, even after a peer came back."""
    missed = Progress(idle=True, appended=3, applied=4)
    known = made(kept(), (5, 6, 7), clean=True)
    assert known.past_end is PastEnd.HOLDS
    assert not known.recalls(IDLE, 3, 1000.0), "a new run waits for its peers"
    assert known.recalls(IDLE | {"p1": missed}, 3, 1000.0)
    assert made(kept(), (5, 6, 7)).recalls(IDLE | {"p1": missed}, 3, 1.0), "after a crash, too"
    for other in (
        Progress(idle=True, appended=4, applied=4),
        Progress(appended=3, applied=4),
        Progress(idle=True, appended=3, applied=4, past_end=PastEnd.HOLDS),
    ):
        assert not known.recalls(IDLE | {"p1": other}, 3, 2000.0), other
    assert not known.recalls(IDLE | {"p1": missed, "p2": Progress()}, 4, 2000.0), "p2 still has work"
    assert not known.recalls(IDLE | {"p2": Progress(idle=True, appended=1)}, 3, 2000.0), (
        "p2 was not idle when the end was stored"
    )
    assert not made(kept(), (6, 6, 7), clean=True).recalls(IDLE | {"p1": missed}, 3, 2000.0)


def test_peers_that_report_their_rest_late_are_stored_too() -> None:
    """A process may hear from a second process that the crawl has ended, before a third one reports its rest."""
    ending = made(MemoryStore(), (5, 6, 7))
    ending.keep(PEERS)
    late = {"p1": Progress(appended=9), "p2": Progress(idle=True, appended=1, applied=2)}
    change = ending.keep(late)
    store = MemoryStore({key: value for key, value in change.operations if value is not None})
    known = made(store, (5, 6, 7), clean=True)
    for name, numbers in (("p1", (3, 4)), ("p2", (1, 2))):
        missed = Progress(idle=True, appended=numbers[0], applied=numbers[1])
        assert known.recalls(IDLE | {name: missed}, 3, 1000.0), name


def test_a_stored_end_is_undisturbed_if_no_process_that_reports_has_worked_since() -> None:
    known = made(kept(), (5, 6, 7), clean=True)
    own = {"p0": Progress(idle=True, past_end=PastEnd.HOLDS)}
    missed = Progress(idle=True, appended=3, applied=4)
    also_knows = Progress(idle=True, appended=9, applied=9, past_end=PastEnd.HOLDS)
    assert known.is_undisturbed(own)
    assert known.is_undisturbed(own | {"p1": missed}) and known.is_undisturbed(own | {"p1": also_knows})
    for other in (
        Progress(idle=True, appended=4, applied=4),
        Progress(idle=True, appended=3, applied=4, past_end=PastEnd.VOID),
        Progress(appended=3, applied=4),
        Progress(idle=True, outbox=1, appended=3, applied=4),
    ):
        assert not known.is_undisturbed(own | {"p1": other}), other
    assert not known.is_undisturbed({"p0": Progress(past_end=PastEnd.HOLDS)}), "this process has work"
    assert not made(kept(), (6, 6, 7), clean=True).is_undisturbed(own), "this process has worked"
    assert not made(MemoryStore(), (0, 0, 0)).is_undisturbed(own), "no end was stored"


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
    assert not awaited.check(["p1", "p2"], False, 92.0), "this process has work"
    assert not awaited.check(["p1"], True, 93.0) and awaited.check(["p1"], True, 123.0) == ["p1"]
    assert not awaited.check([], True, 124.0)
