"""`crawler check`: reads and compares everything of one process, and reports what opening it mended."""

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

from crawler.clock import Clock
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import DamageError
from crawler.process.opening.stages import BALLAST, Stages, at_rest
from crawler.storage.engines import AUTO, Choice, open_store
from crawler.storage.engines import repair as repair_store
from crawler.storage.files import Lock
from crawler.storage.keys import BY_BUCKET, EQUIVALENCES, KEPT, PARKED, TODO, bucket_range, family
from crawler.storage.kv import scan_prefix, unseal
from crawler.storage.reshard import load_json
from crawler.upkeep.rebuild import rebuild
from crawler.upkeep.rediscover import refind
from crawler.upkeep.repair import RepairNote
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter

PROBLEMS_MAX = 1000  # lines of one report


def check(stages: Stages) -> list[str]:
    """What is wrong, a line each; [] if all is well. Reads every value, run and WARC record."""
    problems = list(stages.views.problems())
    problems += _damaged_values(stages)
    problems += _missing_keys(stages)
    problems += _queue_lengths(stages)
    problems += _foreign_keys(stages)
    problems += stages.due.check()
    problems += [f"{problem.where}: {problem.message}" for problem in stages.pages.check()]
    return problems[:PROBLEMS_MAX]


def _damaged_values(stages: Stages) -> list[str]:
    """Keys that nobody writes, and sealed values that are not what was written."""
    problems = []
    for key, value in stages.store.scan(b""):
        found = family(key)
        if found is None:
            problems.append(f"store: nobody writes the key {key!r}")
        elif found.sealed:
            try:
                unseal(key, value)
            except DamageError as error:
                problems.append(str(error))
    return problems


def _missing_keys(stages: Stages) -> list[str]:
    """Kinds of keys of which the store has more or fewer than were written."""
    problems = []
    for name, prefix in KEPT.items():
        found, counted = sum(1 for _ in scan_prefix(stages.store, prefix)), stages.point.counters[name]
        if found != counted:
            problems.append(f"store: {found} keys {prefix.decode()}, {counted} were written ({name})")
    return problems


def _queue_lengths(stages: Stages) -> list[str]:
    """Queues that hold more or fewer URLs than the records of their hosts say."""
    counts = stages.views.frontier_counts()
    problems = []
    for prefix, said in ((TODO, counts.todo), (PARKED, counts.parked)):
        found = sum(1 for _ in scan_prefix(stages.store, prefix))
        if found != said:
            problems.append(f"store: {found} keys {prefix.decode()}, the records of their hosts say {said}")
    return problems


def _foreign_keys(stages: Stages) -> list[str]:
    """Records of hosts that other processes own: both would ask them."""
    partition = stages.topology.partition
    problems = []
    for name, first, end in partition.ranges():
        if name == stages.name:
            continue
        for prefix in BY_BUCKET:
            n = sum(1 for _ in stages.store.scan(*bucket_range(prefix, first, end)))
            if n:
                problems.append(
                    f"store: {n} keys {prefix.decode()} of buckets {first} to {end}, which {name} owns"
                )
    return problems


def repair(config: Config, directory: CrawlDirectory, name: str, clock: Clock) -> tuple[list[str], list[str]]:
    """Mend one process: (what was done, what is wrong even so), a line each.

    Raises:
        DirectoryError: a process has the folder, or it is of another seed.
        StoreError: the disk failed.
    """
    folder, note = directory.process(name), RepairNote(directory, name)
    done, _ = repair_before_opening(folder, config.store.engine, partial(note.begin, store_damaged=True))
    found: list[str] = []
    if not (note.store_damaged or note.cut_off):
        found, opening = _opened(config, directory, name, clock)
        done += opening
        if not found:
            return done, []
    fingerprinter = Fingerprinter(
        directory.seed(),
        method=config.urls.fingerprint,
        partition=config.urls.partition,
        strip_session_ids=config.urls.strip_session_ids,
        equivalences=_equivalences(folder),
    )
    note.begin(store_damaged=any(line.startswith("store: ") for line in found))
    with Lock(folder / "node.lock", name):
        mended, links = rebuild(config, folder, fingerprinter, store_damaged=note.store_damaged)
    done += found + mended.done
    directory.note_state(name, 0)  # of what the rebuilt store has lost, all that was left is in it again
    with at_rest(config, directory, name, clock=clock) as stages:
        done += refind(stages, mended.lost, links, reread=True)
        left = check(stages)
    note.end()
    return done, left


def mend_stores(directory: CrawlDirectory) -> list[str]:
    """Mend the stores that cannot be opened, whatever their format; what was done, a line each.

    `repair` does the rest once they are of the present one.

    Raises:
        DirectoryError: a process has the folder.
        DamageError: a store cannot be rebuilt.
    """
    lines = []
    for name in directory.process_names():
        note = RepairNote(directory, name)
        done, _ = repair_before_opening(
            directory.process(name), before=partial(note.begin, store_damaged=True)
        )
        lines += [f"{name}: {line}" for line in done]
    return lines


def _opened(
    config: Config, directory: CrawlDirectory, name: str, clock: Clock
) -> tuple[list[str], list[str]]:
    """What is wrong once the stages are open, and what opening them mended."""
    try:
        with at_rest(config, directory, name, clock=clock) as stages:
            return check(stages), repaired(stages)
    except DamageError as error:
        return [str(error)], []


def _equivalences(folder: Path) -> Equivalences:
    with closing(open_store(folder / "store")) as store:
        try:
            return Equivalences(load_json(store, EQUIVALENCES))
        except DamageError:
            return Equivalences(None)


def repaired(stages: Stages) -> list[str]:
    """What opening these stages mended, a line each."""
    lines = [stages.mended] if stages.mended else []
    if stages.restored:
        lines.append(f"{stages.restored} pages whose copies are gone are to be fetched again")
    return lines


def repair_before_opening(
    folder: Path, engine: Choice = AUTO, before: Callable[[], None] = lambda: None
) -> tuple[list[str], bool]:
    """Free the ballast, so that a full disk has room; rebuild a store that cannot be opened or read.

    What was done, a line each, and whether the store was rebuilt; `before` is called before that, or before
    a new one takes the place of one that is gone.

    Nothing is written before the ballast is free.

    Raises:
        DirectoryError: a process has the folder.
        DamageError: the store cannot be rebuilt.
    """
    lines = []
    with Lock(folder / "node.lock", folder.name):
        ballast = folder / BALLAST
        if ballast.exists():
            lines.append(f"freed {ballast.stat().st_size >> 20} MiB of ballast")
            ballast.unlink()
        if not (folder / "store").exists():
            before()
        done, rebuilt = repair_store(folder / "store", engine, before)
        lines += [done] if done else []
    return lines, rebuilt
