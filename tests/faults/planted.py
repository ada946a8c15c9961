"""Run the crawler with a bug that is planted in all its processes, so that a test can show that it finds the bug.

    python -m tests.faults.planted BUG crawl ...

BUG is a bug of `tests/lab/cluster/planted.py`, or one from the table below. `slow-runs` and the
planted clocks are not bugs of the crawler, but faults of its environment. BUG may name several bugs,
separated by commas.

    readers-recover     a reader cuts and moves segments as a process does when it opens them
    future-kept         stored times in the future are accepted
    behind-unseen       processes do not notice that one of them was replaced by an earlier state
    repair-unnoted      a repair writes no journal while it changes a crawl
    cut-unseen          opening does not notice that segments are too short
    segments-shared     a reshard links segments into each process that has some of their pages
    links-followed      a crawl directory is not examined for links and pipes
    recovery-cuts       after an unclean end, opening cuts segments before their committed ends
    torn-answers        the page server sends garbage in place of the last bytes of some pages
    overrides-ignored   no `[[override]]` has an effect
    block-unstored      a block is forgotten at the end of the run
    reshard-forgets     a reshard forgets the queued URLs of its last process
    recover-nothing     `crawler recover` finds no links
    upgrade-forgets     an upgrade forgets the queued URLs
    slow-runs           each DUE run takes up to 0.2 s longer to write, so that flushes and compactions overlap
    clock+N, clock-N    the clock is N seconds ahead or behind
    clock@FILE          the clock is ahead by the number in FILE, which each process reads when it makes its clock
"""

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from crawler.cli import main
from crawler.due.runs import DiskRuns
from crawler.storage.commit import Change, CommitPoint
from crawler.supervision import child, supervisor


def _slow_disk() -> list[tuple[Any, str, Any]]:
    """Delay commits, so that a crash can happen after an acknowledgement but before its commit."""
    write = CommitPoint.write

    def write_slowly(self: CommitPoint, group: Sequence[Change]) -> None:
        time.sleep(0.05)
        write(self, group)

    return [(CommitPoint, "write", write_slowly)]


def _slow_runs() -> list[tuple[Any, str, Any]]:
    write = DiskRuns.write

    def write_slowly(*arguments: Any, **options: Any) -> Any:
        time.sleep(random.uniform(0.01, 0.2))
        return write(*arguments, **options)

    return [(DiskRuns, "write", write_slowly)]


def _readers_recover() -> list[tuple[Any, str, Any]]:
    from crawler.pages import segments

    return [(segments, "survey", segments.recover)]


def _future_kept() -> list[tuple[Any, str, Any]]:
    from crawler.frontier.hosts import registry
    from crawler.frontier.refresh import state
    from crawler.robots import cache

    load = state._load_pages

    def load_as_they_are(schedule: Any, chunk: Any, now: float, ended: Any) -> float:
        return load(schedule, chunk, max(now, float(state._page_rows(chunk)[1]["crawled"].max())), ended)

    def corrected_only(instants: Any, now: float, ended: Any) -> Any:
        return instants if ended is None else ended.corrected(instants)

    kept = [(module, "past", lambda instant, now: instant) for module in (registry, cache)]
    return [*kept, (state, "_corrected", corrected_only), (state, "_load_pages", load_as_they_are)]


def _behind_unseen() -> list[tuple[Any, str, Any]]:
    from crawler.process.opening import stages
    from crawler.splitter.spool import Spool
    from crawler.storage.keys import STATE
    from crawler.storage.reshard import load
    from crawler.upkeep import behind_peers

    return [
        (stages, "state_of", lambda store, folder: load(store, STATE, int, 0)),
        (Spool, "missing", lambda self, applied: 0),
        (behind_peers, "find_behind", lambda exchanged: []),
    ]


def _repair_unnoted() -> list[tuple[Any, str, Any]]:
    from crawler.upkeep.repair import RepairNote

    nothing = staticmethod(lambda *_, **__: None)
    return [(RepairNote, "examine", nothing), (RepairNote, "begin", nothing), (RepairNote, "end", nothing)]


def _cut_unseen() -> list[tuple[Any, str, Any]]:
    from crawler.pages import damage
    from crawler.upkeep import check

    return [(damage, "find_lost", lambda archive, damaged: []), (check, "check", lambda stages: [])]


def _segments_shared() -> list[tuple[Any, str, Any]]:
    from crawler.pages import reshard

    survey = reshard._Segments._survey

    def survey_own(segments: Any) -> Any:
        own, _, repeated = survey(segments)
        return own, own, repeated

    return [(reshard._Segments, "_survey", survey_own)]


def _links_followed() -> list[tuple[Any, str, Any]]:
    from crawler.crawl import directory

    return [(directory, "strange_entry", lambda path: "")]


def _recovery_cuts() -> list[tuple[Any, str, Any]]:
    from crawler.pages import segments

    recover = segments._recover_segment

    def recover_less(folder: Path, segment: str, length: int, recovery: Any) -> None:
        recover(folder, segment, max(0, length - 5_000), recovery)

    return [(segments, "_recover_segment", recover_less)]


def _torn_answers() -> list[tuple[Any, str, Any]]:
    from crawler.serve.representation import Representation

    held = Representation.held

    def held_in_part(self: Representation) -> bytes | None:
        body = held(self)
        return body if body is None or random.random() < 0.5 else body[:-9] + bytes(9)

    return [(Representation, "held", held_in_part)]


def _overrides_ignored() -> list[tuple[Any, str, Any]]:
    from crawler.config.overrides import Overrides
    from crawler.config.schema import Override

    return [(Overrides, "for_url", lambda self, url, hostname: Override())]


def _block_unstored() -> list[tuple[Any, str, Any]]:
    from crawler.frontier.hosts.table import HostFlag
    from crawler.frontier.pauses import HostBlocks

    def block_in_memory(self: HostBlocks, hostname: str) -> None:
        self._hosts.flags[self._registry.slot(hostname)] |= HostFlag.BLOCKED

    return [(HostBlocks, "block", block_in_memory)]


def _reshard_forgets() -> list[tuple[Any, str, Any]]:
    from crawler.storage.keys import TODO
    from crawler.storage.reshard import NewProcess

    copy = NewProcess.copy

    def copy_less(self: NewProcess, prefix: bytes) -> Any:
        return iter(()) if prefix == TODO and not self.heir else copy(self, prefix)

    return [(NewProcess, "copy", copy_less)]


def _recover_nothing() -> list[tuple[Any, str, Any]]:
    from crawler.upkeep.stored_links import StoredLinks

    return [(StoredLinks, "owned_by", lambda self, name: iter(()))]


def _upgrade_forgets() -> list[tuple[Any, str, Any]]:
    from crawler.storage.engines import open_store
    from crawler.storage.keys import TODO
    from crawler.storage.kv import scan_prefix
    from crawler.upgrade import steps

    def forget(directory: Any) -> None:
        last(directory)
        for name in directory.process_names():
            with closing(open_store(directory.process(name) / "store")) as store:
                batch = store.batch(sync=True)
                for key, _ in list(scan_prefix(store, TODO)):
                    batch.delete(key)
                store.write(batch)

    last = steps.STEPS[-1]
    return [(steps, "STEPS", (*steps.STEPS[:-1], forget))]


def _clock(shift: Callable[[], float]) -> list[tuple[Any, str, Any]]:
    from crawler.clock import SystemClock

    begin = SystemClock.__init__

    def begin_elsewhere(self: SystemClock) -> None:
        begin(self)
        self._offset += shift()

    return [(SystemClock, "__init__", begin_elsewhere)]


OWN: dict[str, Callable[[], list[tuple[Any, str, Any]]]] = {
    "slow-runs": _slow_runs,
    "readers-recover": _readers_recover,
    "future-kept": _future_kept,
    "behind-unseen": _behind_unseen,
    "repair-unnoted": _repair_unnoted,
    "cut-unseen": _cut_unseen,
    "segments-shared": _segments_shared,
    "links-followed": _links_followed,
    "recovery-cuts": _recovery_cuts,
    "torn-answers": _torn_answers,
    "overrides-ignored": _overrides_ignored,
    "block-unstored": _block_unstored,
    "reshard-forgets": _reshard_forgets,
    "recover-nothing": _recover_nothing,
    "upgrade-forgets": _upgrade_forgets,
    "ack-before-commit": lambda: [*_of_cluster("ack-before-commit"), *_slow_disk()],
}


def _of_cluster(bug: str) -> list[tuple[Any, str, Any]]:
    from tests.lab.cluster.planted import PLANTS  # a crawl needs half a second of CPU time to import it

    return list(PLANTS[bug].patches())


def plant(bugs: str) -> None:
    """Plant bugs, given as names separated by commas, in this process."""
    for thing, name, value in _all_patches(bugs):
        setattr(thing, name, value)


@contextmanager
def planted(bugs: str) -> Iterator[None]:
    """Plant bugs in this process until the block ends."""
    patches = _all_patches(bugs)
    former = [(thing, name, vars(thing)[name]) for thing, name, _ in patches]
    for thing, name, value in patches:
        setattr(thing, name, value)
    try:
        yield
    finally:
        for thing, name, value in reversed(former):
            setattr(thing, name, value)


def _all_patches(bugs: str) -> list[tuple[Any, str, Any]]:
    return [patch for bug in filter(None, bugs.split(",")) for patch in _patches(bug)]


def _patches(bug: str) -> list[tuple[Any, str, Any]]:
    if bug.startswith("clock@"):
        return _clock(lambda: float(Path(bug.removeprefix("clock@")).read_text()))
    if bug.startswith("clock"):
        return _clock(lambda: float(bug.removeprefix("clock")))
    return OWN[bug]() if bug in OWN else _of_cluster(bug)


if __name__ == "__main__":
    bug, command, *arguments = sys.argv[1:]
    plant(bug)
    if command == "worker":
        raise SystemExit(child.main(arguments))
    supervisor.PROGRAM = ("-m", "tests.faults.planted", bug, "worker")
    raise SystemExit(main([command, *arguments]))
