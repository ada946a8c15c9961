"""Compare the storage engines: CPU of puts, gets and scans, time to reopen after a kill, bytes per URL.

    .venv/bin/python scripts/bench/stores.py [URLS]

Keys are random and have 12 bytes. Values are sealed URLs of about 55 bytes. Keys and values are written in
groups of 256, and every 16th group is synced. The engines take turns, so that other load on the machine
affects both engines equally.
"""

import shutil
import tempfile
import time
from itertools import islice
from pathlib import Path
from random import Random

from crawler.bench import harness
from crawler.bench.meters import cpu_of
from crawler.cli.parsing import positive_count
from crawler.storage.engines import ENGINES, Engine, open_store
from crawler.storage.kv import DiskStore, seal
from crawler.storage.snapshot import snapshot

ROUNDS = 3
GROUP = 256
SYNCED_EVERY = 16


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("urls", metavar="URLS", nargs="?", type=positive_count(), default=200_000)
    urls = parser.parse_args().urls
    rng = Random(1)
    rows = [
        (
            b"t/" + rng.randbytes(10),
            seal(b"http://host%d.example.org/section/%d/article-%d.html" % (i % 997, i % 13, i)),
        )
        for i in range(urls)
    ]
    table = harness.Table(
        "engine   ",
        "put us",
        "get us",
        "scan us",
        "scan of 16 us",
        "reopened ms",
        "CPU ms",
        "bytes a URL",
        "compacted",
    )
    for _ in range(ROUNDS):
        for engine in ENGINES:
            with tempfile.TemporaryDirectory() as folder:
                table.row(engine, *measure(engine, Path(folder), rows))


def measure(engine: Engine, folder: Path, rows: list[tuple[bytes, bytes]]) -> tuple[float, ...]:
    """Return the figures of a row."""
    store = open_store(folder / "store", engine)
    put = cpu_of(lambda: write(store, rows)) / len(rows)
    get = cpu_of(lambda: [store.get(key) for key, _ in rows[::10]]) / len(rows[::10])
    scan = cpu_of(lambda: sum(1 for _ in store.scan(b"t/", b"u/"))) / len(rows)
    short = cpu_of(lambda: [list(islice(store.scan(key), 16)) for key, _ in rows[::40]]) / len(rows[::40])
    snapshot(folder / "store", folder / "killed")
    store.close()
    disk = size(folder / "killed", "*") / len(rows)
    begun, wall = time.process_time(), time.perf_counter()
    store = open_store(folder / "killed")
    wall, used = time.perf_counter() - wall, time.process_time() - begun
    store.compact()
    store.close()
    compacted = size(folder / "killed", "*.[ls][ds][bt]") / len(rows)
    shutil.rmtree(folder / "killed")
    return *(each * 1e6 for each in (put, get, scan, short)), wall * 1e3, used * 1e3, disk, compacted


def write(store: DiskStore, rows: list[tuple[bytes, bytes]]) -> None:
    for number, first in enumerate(range(0, len(rows), GROUP)):
        batch = store.batch(sync=number % SYNCED_EVERY == 0)
        for key, value in rows[first : first + GROUP]:
            batch.put(key, value)
        store.write(batch)


def size(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern) if not path.name.startswith("LOG"))


if __name__ == "__main__":
    main()
