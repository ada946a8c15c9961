"""`crawler check`: reads and compares all data of a process, and reports the repairs made when the store was opened."""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

from crawler.clock import Clock
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.topology import Topology
from crawler.errors import DamageError
from crawler.export.worker_pool import WorkerPool
from crawler.pages.captures import Problem
from crawler.pages.damage import PROBLEMS_MAX, SegmentPart
from crawler.process.committing.counters import RECOVERIES
from crawler.process.opening.stages import BALLAST, Stages, at_rest
from crawler.records import SplitterCounts
from crawler.storage.commit import Change
from crawler.storage.engines import AUTO, Choice, open_store
from crawler.storage.engines import repair as repair_store
from crawler.storage.files import Lock
from crawler.storage.keys import BY_BUCKET, EQUIVALENCES, FAMILIES, KEPT, PARKED, TODO, bucket_range, family
from crawler.storage.kv import KeyValue, unseal
from crawler.storage.reshard import load_json
from crawler.upkeep import lost_receipts
from crawler.upkeep.rebuild import rebuild
from crawler.upkeep.rediscover import refind
from crawler.upkeep.repair import RepairNote
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import fingerprinter_of

_TOLD_EVERY = 1000  # number of values after which the progress is told
_NOTICES = ("splitter.scope_told", "splitter.signals_told", "splitter.credits_told")


# Receives the progress of a check: what is read, how much of it was read, and how much there is (0 if unknown).
Tell = Callable[[str, int, int], None]


def untold(what: str, done: int, whole: int) -> None:
    """Report no progress."""


def check(stages: Stages, processes: int = 1, tell: Tell = untold) -> list[str]:
    """Return a list of the problems found, one line each. Every value, run and WARC record is read.

    `processes` is the number of processes that read the WARC records. `tell` is called often.

    Raises:
        CrawlerError: a process that read WARC records was killed, and so was its replacement.
    """
    store, views, due, pages = stages.store, stages.views, stages.due, stages.pages
    problems = list(views.problems())
    damaged, keys = _read_values(store, tell)
    problems += damaged
    problems += _wrong_counts(keys, stages)
    problems += _foreign_keys(store, stages.topology)
    problems += lost_receipts.problems(store)
    problems += due.check()
    whole = sum(length for _, length in pages.committed_lengths())
    read = partial(_shared, processes, lambda done: tell("bytes of WARC records", done, whole))
    problems += [f"{problem.where}: {problem.message}" for problem in pages.check(read)]
    return problems[:PROBLEMS_MAX]


def _shared(
    processes: int,
    told: Callable[[int], None],
    work: Callable[[SegmentPart], list[Problem]],
    parts: Iterable[SegmentPart],
) -> Iterator[list[Problem]]:
    """Read the parts in several processes; yield the problems of each part, in the order of the parts."""
    pool: WorkerPool[SegmentPart, list[Problem]] = WorkerPool(lambda part, _careful: work(part), processes)
    lengths: deque[int] = deque()
    done = 0

    def noted() -> Iterator[SegmentPart]:
        for part in parts:
            lengths.append(part.end - part.begin)
            yield part

    with pool:
        for problems in pool.results(noted()):
            done += lengths.popleft()
            told(done)
            yield problems


def _read_values(store: KeyValue, tell: Tell) -> tuple[list[str], Counter[bytes]]:
    """Return a line for each unknown key and each damaged sealed value, and the number of keys with each prefix."""
    problems = []
    keys: Counter[bytes] = Counter()
    for number, (key, value) in enumerate(store.scan(b""), 1):
        if not number % _TOLD_EVERY:
            tell("values of the store", number, 0)
        found = family(key)
        keys[key[:2]] += 1
        if found is None:
            problems.append(f"store: the key {key!r} is unknown")
        elif found.sealed:
            try:
                unseal(key, value)
            except DamageError as error:
                problems.append(str(error))
    return problems, keys


def _wrong_counts(keys: Counter[bytes], stages: Stages) -> list[str]:
    """Return a line for each kind of keys whose number differs from its counter, or from that in the host records."""
    written, queues = stages.point.counters, stages.views.frontier_counts()
    stated = [
        (prefix, written[name], f"{written[name]} were written ({name})") for name, prefix in KEPT.items()
    ]
    for prefix, count in ((TODO, queues.todo), (PARKED, queues.parked)):
        stated.append((prefix, count, f"the host records say {count}"))
    return [
        f"store: {keys[prefix]} keys {prefix.decode()}, but {said}"
        for prefix, count, said in stated
        if keys[prefix] != count
    ]


def _foreign_keys(store: KeyValue, topology: Topology) -> list[str]:
    """Return a line for each range of keys of another process. Both processes would crawl the hosts of the range.

    Families with `of_files` are left out: nothing is crawled because of their keys.
    """
    problems = []
    prefixes = [prefix for prefix in BY_BUCKET if not FAMILIES[prefix].of_files]
    for name, first, end in topology.partition.ranges():
        if name == topology.me:
            continue
        for prefix in prefixes:
            n = sum(1 for _ in store.scan(*bucket_range(prefix, first, end)))
            if n:
                problems.append(
                    f"store: {n} keys {prefix.decode()} of buckets {first} to {end}, which {name} owns"
                )
    return problems


def begin_repair(directory: CrawlDirectory, names: Sequence[str]) -> list[str]:
    """Record that a repair of these processes begins. Until it is complete, other commands refuse the directory.

    Return what was done. Disk space is freed first, because a full disk has no room for the record.
    """
    lines = [f"{name}: {line}" for name in names for line in _free_ballast(directory.process(name))]
    RepairNote.examine(directory, names)
    return lines


def repair(
    config: Config,
    directory: CrawlDirectory,
    name: str,
    clock: Clock,
    processes: int = 1,
    tell: Tell = untold,
) -> tuple[list[str], list[str]]:
    """Repair one process; return the repairs made and the problems that remain, one line each.

    `processes` and `tell` are passed to `check`.

    If the store was rebuilt and the process has peers, the repair is complete only after
    `behind.recover_behind`.

    Raises:
        DirectoryError: a process uses the folder, or the folder belongs to another seed.
        StoreError: the disk failed.
    """
    folder, note = directory.process(name), RepairNote(directory, name)
    done = repair_before_opening(folder, config.store.engine, partial(note.begin, store_damaged=True))
    found: list[str] = []
    if not (note.store_damaged or note.cut_off):
        try:
            with at_rest(config, directory, name, clock=clock) as stages:
                found = check(stages, processes, tell)
                done += repaired(stages)
        except DamageError as error:
            found = [str(error)]
        if not found:
            note.end()
            return done, []
    fingerprinter = fingerprinter_of(config.urls, directory.seed(), _equivalences(folder))
    note.begin(store_damaged=any(line.startswith("store: ") for line in found))
    with Lock(folder / "node.lock", name):
        mended, links = rebuild(config, folder, fingerprinter, store_damaged=note.store_damaged)
    done += found + mended.done
    # The state number in the rebuilt store may be lower than the recorded number. But the store now holds all
    # surviving data, so its number is accepted.
    directory.note_state(name, 0)
    with at_rest(config, directory, name, clock=clock) as stages:
        if note.store_damaged:
            balance(stages)
        done += refind(stages, mended.lost, links)
        left = check(stages, processes, tell)
    if not (note.store_damaged and stages.topology.peers):
        note.end()
    return done, left


def mend_stores(directory: CrawlDirectory) -> list[str]:
    """Repair the stores that cannot be opened, whatever the format of the directory is; return what was done.

    `repair` does the rest of the repair once the stores are in the current format.

    Raises:
        DirectoryError: a process uses the folder.
        DamageError: a store cannot be rebuilt.
    """
    lines = []
    for name in directory.process_names():
        note = RepairNote(directory, name)
        before = partial(note.begin, store_damaged=True)
        lines += [f"{name}: {line}" for line in repair_before_opening(directory.process(name), before=before)]
    return lines


def balance(stages: Stages) -> None:
    """Set the counters of messages to peers so that they agree with the outbox (`process/committing/counters.py`).

    The outbox and the counters are stored under different keys, so damage may have removed one and not the
    other. Then they would contradict each other forever, and a reshard would refuse the crawl.
    """
    counts = stages.views.splitter_counts()
    if counts is None:
        return
    change = Change(sync=True)
    change.count(RECOVERIES)
    for name, difference in corrections(counts, stages.point.counters["urls.to_outbox"]).items():
        change.count(name, difference)
    stages.commits.commit_now(change)


def corrections(counts: SplitterCounts, to_outbox: int) -> dict[str, int]:
    """Return what to add to each counter.

    If there are more notices than messages went through the outbox, all messages count as links.
    """
    passed = counts.sent + counts.waiting + counts.repeated
    told = dict(zip(_NOTICES, (counts.scope_told, counts.signals_told, counts.credits_told), strict=True))
    forgotten = {name: -told[name] for name in _NOTICES} if sum(told.values()) > passed else {}
    links = passed - sum(told.values()) - sum(forgotten.values())
    # the links to peers are also in the equation of all links, in which `resharded` balances them
    return {**forgotten, "urls.to_outbox": links - to_outbox, "urls.resharded": links - to_outbox}


def _equivalences(folder: Path) -> Equivalences:
    with closing(open_store(folder / "store")) as store:
        try:
            return Equivalences(load_json(store, EQUIVALENCES))
        except DamageError:
            return Equivalences(None)


def repaired(stages: Stages) -> list[str]:
    """Return the repairs that were made when these stages were opened, one line each."""
    lines = [stages.mended] if stages.mended else []
    if stages.restored:
        lines.append(f"pages queued to be fetched again for lack of a copy: {stages.restored:,}")
    return lines


def repair_before_opening(
    folder: Path, engine: Choice = AUTO, before: Callable[[], None] = lambda: None
) -> list[str]:
    """Free the ballast, so that a full disk has room. Then rebuild the store if it cannot be opened or read.

    Return what was done, one line each. `before` is called before the store is rebuilt, or before a new store
    replaces one that is missing. Before the ballast is freed, nothing is written.

    Raises:
        DirectoryError: a process uses the folder.
        DamageError: the store cannot be rebuilt.
    """
    lines = _free_ballast(folder)
    with Lock(folder / "node.lock", folder.name):
        if not (folder / "store").exists():
            before()
        done, _ = repair_store(folder / "store", engine, before)
    return [*lines, done] if done else lines


def _free_ballast(folder: Path) -> list[str]:
    with Lock(folder / "node.lock", folder.name):
        ballast = folder / BALLAST
        if not ballast.exists():
            return []
        freed = f"freed {ballast.stat().st_size >> 20} MiB of ballast"
        ballast.unlink()
        return [freed]
