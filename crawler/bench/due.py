"""Measures the Duplicate URL Eliminator against LevelDB, SQLite, one sorted file and a Python set.

At the start, some URLs are known. Then buffers of fingerprints arrive. In each buffer, a share of the
fingerprints is new. The other fingerprints in the buffer are drawn evenly from the known URLs. Each contender
finds the new fingerprints and adds them to its set. If a contender stores its set on disk, the added
fingerprints are durable. The measured time includes all flushes, compactions and syncs. The operating
system's page cache is warm.

runs      the known set of a crawl: sorted, coded runs on disk, merged in powers of two
whole     the same runs inside `Eliminator`: links go through the links log, flushes are part of store batches
one_file  the paper's single sorted file: every flush rewrites it
memory    runs kept in memory, 5.2 bytes per fingerprint
leveldb   a look-up per URL, a bloom filter of 10 bits, a synced batch per buffer
sqlite    INSERT OR IGNORE into a table by key, a synced transaction per buffer
set       a Python set, a look-up per URL, nothing durable

`--known 1e9 --only runs` needs 0.5 GB of memory and 5 GB of disk space (10 GB while the set is built). The
known set of a contender with runs is built from sorted chunks, which are merged as a crawl merges its
flushes. Building this set needs no join with the URLs that are already known, because the chunks are
disjoint. From 1e8 known URLs on, progress is printed to standard error.
"""

import argparse
import importlib.util
import os
import resource
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from crawler.bench import harness
from crawler.bench.meters import anonymous_bytes
from crawler.bench.streams import Fingerprints, mixed
from crawler.cli.parsing import OptionParser, positive_count
from crawler.config import DueConfig
from crawler.due import elias_fano
from crawler.due.eliminator import Appended, Eliminator
from crawler.due.known_set import KnownSet, RunStore, unknown
from crawler.due.plans import Flushed
from crawler.due.run_list import Manifest
from crawler.due.runs import DiskRuns, Run, open_run, write_keys
from crawler.records import Link
from crawler.storage.engines import open_store
from crawler.storage.keys import DUE_FLUSHED, DUE_LINKS, DUE_RUNS
from crawler.storage.reshard import pack

CHUNK_BYTES = 4 << 20
_LOAD = 1 << 20
_CHUNKS = 32  # a known set is built from this many chunks, each of which has _LOAD to _CHUNK_MAX fingerprints
_CHUNK_MAX = 1 << 25
_TOLD_MIN = 100_000_000  # progress is printed while a set of at least this many known URLs is built


def add_arguments(parser: OptionParser) -> None:
    parser.option("--known", 1_000_000, "URLs in the known set", type=positive_count())
    parser.option("--buffer", 1 << 16, "URLs per flush (65,536)", type=positive_count())
    parser.option("--flushes", 64, "number of flushes", type=positive_count())
    parser.option("--new", 0.2, "share of the submitted URLs that are new")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=list(CONTENDERS),
        default=installed(),
        help="contenders to measure (all that are installed)",
    )
    parser.option(
        "--slow-flushes", 4, "number of flushes measured for the one_file method", type=positive_count()
    )
    parser.option("--directory", Path, "folder for the files (the temporary directory)", metavar="DIR")
    parser.option("--seed", 1)
    parser.option("--json", False, "print JSON")


class Contender:
    """A set that separates new URLs from known ones. At first, it contains `mixed(0 .. known - 1)`."""

    def prepare(self, fingerprints: Fingerprints) -> Any:
        """Convert a buffer to the data type that this contender accepts. The time of this step is not measured."""
        return fingerprints

    def submit(self, buffer: Any) -> int:
        """Add the fingerprints of a buffer and return the number of new ones.

        A contender that stores its set on disk adds them durably.
        """
        raise NotImplementedError

    def facts(self) -> dict[str, Any]:
        """Return further measurements of this contender, by name."""
        return {}

    def close(self) -> None:
        """Release all resources; no other method is called afterwards."""


class Runs(Contender):
    """Sorted runs of fingerprints, without their links."""

    def __init__(self, directory: Path, known: int, *, store: RunStore | None = None) -> None:
        before, began, began_cpu = anonymous_bytes(), time.perf_counter(), time.process_time()
        self._set = built(store or DiskRuns(directory, []), known)
        self._build_s, self._build_cpu = time.perf_counter() - began, time.process_time() - began_cpu
        self._peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        self._anonymous = anonymous_bytes() - before
        self._known = known
        self._directory = directory
        self._written = self._new = 0
        self._longest = 0.0

    def submit(self, buffer: Fingerprints) -> int:
        began = time.perf_counter()
        new, _ = unknown(buffer, self._set.runs)
        if len(new):
            run = self._set.store.write([new], len(new), step="flush")
            self._set.add(run)
            self._written += run.byte_count
        self._longest = max(self._longest, time.perf_counter() - began)
        self._new += len(new)
        self._merge()
        return len(new)

    def due_merge(self) -> list[Run]:
        """Return the runs to merge after a flush."""
        return self._set.due_merge()

    def _merge(self) -> None:
        while inputs := self.due_merge():
            outcome = self._set.merge(inputs)
            self._written += outcome.byte_count
            self._set.replace(inputs, outcome)

    def facts(self) -> dict[str, Any]:
        return {
            "runs": [run.count for run in self._set.runs],
            "build s": self._build_s,
            "build CPU us a URL": 1e6 * self._build_cpu / self._known,
            "build peak resident MiB": self._peak / 1024,
            "longest flush ms, no compaction": 1e3 * self._longest,
            "bytes written a new URL": self._written / max(self._new, 1),
            "bytes a URL": sum(run.byte_count for run in self._set.runs) / len(self._set),
            "bytes a URL of the largest run": self._set.runs[0].byte_count / self._set.runs[0].count,
            "anonymous memory a URL": self._anonymous / len(self._set),
            "fences a URL": sum(run.fences.nbytes for run in self._set.runs) / len(self._set),
            "reopen ms": 1e3 * self._reopen_s(),
        }

    def _reopen_s(self) -> float:
        """Return the seconds that reopening the runs takes."""
        began = time.perf_counter()
        for run in self._set.runs:
            open_run(self._directory, run.entry)
        return time.perf_counter() - began


class OneFile(Runs):
    """All known fingerprints in a single sorted file, as in Mercator (Broder, Najork, Wiener 2003)."""

    def __init__(self, directory: Path, known: int) -> None:
        super().__init__(directory, known)
        self._merge()
        self._written = 0

    def due_merge(self) -> list[Run]:
        return list(self._set.runs) if len(self._set.runs) > 1 else []


class MemoryRuns:
    """Creates runs in memory, in the same coding as on disk.

    Mercator's in-memory table takes 5.2 bytes per fingerprint.
    """

    def write(self, chunks: Iterable[Fingerprints], count: int, *, step: str) -> Run:
        """Create a run of the `count` ascending keys in `chunks`."""
        data = bytearray()
        entry = write_keys(data.extend, 0, chunks)
        assert entry.count == count, f"{entry.count} keys came, not {count}"
        return Run(Path("memory"), entry, data)

    def remove(self, run: Run) -> None:
        """Do nothing: the memory is freed when the last reader drops the run."""


class Memory(Runs):
    """Runs in memory (Broder, Najork, Wiener 2003, section 4.1)."""

    def __init__(self, directory: Path, known: int) -> None:
        super().__init__(directory, known, store=MemoryRuns())

    def _reopen_s(self) -> float:
        return 0.0  # this store keeps its runs in memory, so there is nothing to reopen


class Whole(Contender):
    """A complete `Eliminator` with its links, links log and store. It executes the same steps as in a crawl."""

    def __init__(self, directory: Path, known: int) -> None:
        held = built(DiskRuns(directory / "due", []), known)
        self._store = open_store(directory / "store")
        batch = self._store.batch()
        manifest = Manifest("mmh3", 1, [run.entry for run in held.runs])
        batch.put(DUE_RUNS, pack(manifest))
        batch.put(DUE_LINKS, pack(Appended(0, known)))
        batch.put(DUE_FLUSHED, pack(Flushed(0, 0, known)))
        self._store.write(batch)
        self._due = Eliminator(directory, self._store, DueConfig(), check_value=1, method="mmh3")

    def prepare(self, fingerprints: Fingerprints) -> list[list[Link]]:
        links = [
            Link(number, f"http://www.example.org/some/where/{number:x}", 3, 1)
            for number in fingerprints.tolist()
        ]
        return [links[start : start + 64] for start in range(0, len(links), 64)]

    def submit(self, buffer: list[list[Link]]) -> int:
        for first in range(0, len(buffer), 16):  # the links of a group of 16 pages
            for links in buffer[first : first + 16]:
                self._due.admit(np.array([link.fingerprint for link in links], np.uint64))
                self._due.append(links)
            self._due.sync()
            self._commit(self._due.stage)
            self._due.committed()
        handed_out = 0
        while flush := self._due.begin_flush(0.0):
            flush.run()
            self._commit(partial(self._due.stage_flush, flush))
            self._due.flushed(flush)
            handed_out += len(flush.new_links)
        while compaction := self._due.compactor.begin():
            compaction.run()
            self._commit(partial(self._due.compactor.stage, compaction))
            self._due.compactor.committed(compaction)
        return handed_out

    def _commit(self, stage: Callable[[Any], None]) -> None:
        batch = self._store.batch(sync=True)
        stage(batch)
        self._store.write(batch)

    def close(self) -> None:
        self._store.close()


class Level(Contender):
    """LevelDB, configured for hashed keys and loaded in sorted order.

    It makes a look-up per URL and writes a synced batch per buffer.
    """

    def __init__(self, directory: Path, known: int) -> None:
        import plyvel

        self._store = plyvel.DB(
            str(directory),
            create_if_missing=True,
            bloom_filter_bits=10,
            block_size=4096,
            lru_cache_size=64 << 20,
            write_buffer_size=32 << 20,
            max_file_size=32 << 20,
            compression=None,  # hashes cannot be compressed
        )
        ascending = built(DiskRuns(directory.with_name("ascending"), []), known)
        # Keys arrive in sorted order, so each table is written only once, and the store needs no compaction.
        for chunk in ascending.slice(0, 1 << 16):
            with self._store.write_batch() as batch:
                for number in chunk.tolist():
                    batch.put(number.to_bytes(8, "big"), b"")
        shutil.rmtree(directory.with_name("ascending"))

    def prepare(self, fingerprints: Fingerprints) -> list[bytes]:
        return [number.to_bytes(8, "big") for number in fingerprints.tolist()]

    def submit(self, buffer: list[bytes]) -> int:
        get, batch = self._store.get, self._store.write_batch(sync=True)
        new = set()
        for key in buffer:
            if key not in new and get(key) is None:
                new.add(key)
                batch.put(key, b"")
        batch.write()
        return len(new)

    def close(self) -> None:
        self._store.close()


class Sqlite(Contender):
    """SQLite with a table indexed by key and a synced transaction per buffer."""

    def __init__(self, directory: Path, known: int) -> None:
        directory.mkdir(parents=True)
        self._database = sqlite3.connect(directory / "known.sqlite")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("CREATE TABLE known (fingerprint INTEGER PRIMARY KEY)")
        numbers = np.sort(mixed(np.arange(known)).view(np.int64))
        self._insert((number,) for number in numbers.tolist())

    def _insert(self, rows: Iterable[tuple[int]]) -> int:
        with self._database:
            return self._database.executemany("INSERT OR IGNORE INTO known VALUES (?)", rows).rowcount

    def prepare(self, fingerprints: Fingerprints) -> list[tuple[int]]:
        return [(number,) for number in fingerprints.view(np.int64).tolist()]

    def submit(self, buffer: list[tuple[int]]) -> int:
        return self._insert(buffer)

    def close(self) -> None:
        self._database.close()


class Set(Contender):
    """A Python set."""

    def __init__(self, directory: Path, known: int) -> None:
        self._known: set[int] = set()
        for chunk in _known_in_chunks(known):
            self._known.update(chunk.tolist())

    def prepare(self, fingerprints: Fingerprints) -> list[int]:
        return list(map(int, fingerprints))

    def submit(self, buffer: list[int]) -> int:
        known, new = self._known, 0
        for number in buffer:
            if number not in known:
                known.add(number)
                new += 1
        return new


CONTENDERS: dict[str, Callable[[Path, int], Contender]] = {
    "runs": Runs,
    "whole": Whole,
    "one_file": OneFile,
    "memory": Memory,
    "leveldb": Level,
    "sqlite": Sqlite,
    "set": Set,
}


def installed() -> list[str]:
    """Return the names of all contenders, without LevelDB if plyvel is not installed."""
    return [name for name in CONTENDERS if name != "leveldb" or importlib.util.find_spec("plyvel")]


def _known_in_chunks(known: int) -> Iterator[Fingerprints]:
    return (mixed(np.arange(start, min(start + _LOAD, known))) for start in range(0, known, _LOAD))


def built(store: RunStore, known: int) -> KnownSet:
    """Return a known set of `mixed(0 .. known - 1)`. It is built from sorted chunks, which are added like flushes."""
    held = KnownSet(store, [], chunk_bytes=CHUNK_BYTES)
    size, began = min(max(known // _CHUNKS, _LOAD), _CHUNK_MAX), time.perf_counter()
    keys = np.empty(min(size, known), np.uint64)
    for start in range(0, known, size):
        part = keys[: min(size, known - start)]
        for at in range(0, len(part), _LOAD):
            part[at : at + _LOAD] = mixed(np.arange(start + at, start + min(at + _LOAD, len(part))))
        part.sort()
        held.add(store.write([part], len(part), step="flush"))
        while inputs := held.due_merge():
            held.replace(inputs, held.merge(inputs))
        del inputs
        held.close_replaced()
        if known >= _TOLD_MIN:
            done, took = start + len(part), time.perf_counter() - began
            print(f"  {done:,} of {known:,} known, {took:.0f} s", file=sys.stderr, flush=True)
    return held


def buffers(arguments: argparse.Namespace, flushes: int) -> Iterator[Fingerprints]:
    """Yield the buffers to submit, which are the same for every contender."""
    generator = np.random.default_rng(arguments.seed)
    next_new = arguments.known
    for _ in range(flushes):
        new = int(round(arguments.buffer * arguments.new))
        old = generator.integers(next_new, size=arguments.buffer - new)
        numbers = np.concatenate([old, np.arange(next_new, next_new + new)])
        next_new += new
        yield mixed(generator.permutation(numbers))


def measure(name: str, arguments: argparse.Namespace, directory: Path) -> dict[str, Any]:
    """Measure one contender and return its row."""
    flushes = min(arguments.flushes, arguments.slow_flushes) if name == "one_file" else arguments.flushes
    contender = CONTENDERS[name](directory, arguments.known)
    os.sync()  # sync first, so that pending writes from loading are not measured
    cpu = wall = longest = 0.0
    new = 0
    for fingerprints in buffers(arguments, flushes):
        buffer = contender.prepare(fingerprints)
        began_cpu, began = time.process_time(), time.perf_counter()
        new += contender.submit(buffer)
        took = time.perf_counter() - began
        cpu += time.process_time() - began_cpu
        wall += took
        longest = max(longest, took)
    submissions = flushes * arguments.buffer
    row = {
        "contender": name,
        "URLs": submissions,
        "new": new,
        "CPU us a URL": 1e6 * cpu / submissions,
        "wall us a URL": 1e6 * wall / submissions,
        "mean flush ms": 1e3 * wall / flushes,
        "longest ms": 1e3 * longest,
    }
    facts = contender.facts()
    contender.close()
    return {"row": row, "facts": facts}


def _with_ratios(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Add to each row the ratio of its time to the time of the first row; return the rows."""
    first = rows[0]
    return [
        {
            **row,
            "x CPU": row["CPU us a URL"] / first["CPU us a URL"],
            "x wall": row["wall us a URL"] / first["wall us a URL"],
        }
        for row in rows
    ]


def run(arguments: argparse.Namespace) -> int:
    """Measure, print the results and return the exit code."""
    found = {}
    for name in arguments.only:
        with tempfile.TemporaryDirectory(prefix="crawler-bench-", dir=arguments.directory) as directory:
            found[name] = measure(name, arguments, Path(directory) / name)
    rows = _with_ratios([part["row"] for part in found.values()])
    facts = {name: part["facts"] for name, part in found.items() if part["facts"]}
    form = "compiled" if elias_fano.COMPILED else "interpreted"
    if arguments.json:
        harness.show_json(
            benchmark="due", form=form, known=arguments.known, buffer=arguments.buffer, rows=rows, facts=facts
        )
        return 0
    harness.show(f"due ({form}): {arguments.known:,} known, buffers of {arguments.buffer:,}", rows)
    for name, figures in facts.items():
        harness.show(name, [{"figure": key, "value": value} for key, value in figures.items()])
    return 0
