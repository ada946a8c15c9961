"""Scale of the frontier: URLs over many hosts through `add` into LevelDB, then opened again.

    python scripts/bench/frontier_scale.py [urls] [hosts] [directory]

The stream is synthetic: every host gets one URL first, the others fall on
hosts by a skewed draw (the square of a uniform number, so the busiest tenth of
the hosts has a third of the URLs). URLs have 77 bytes on average. Printed are
the CPU of `add` and of writing its batches a link, resident memory with the
part that is not file pages (LevelDB maps its tables), bytes on disk a URL,
the seconds of opening after a clean and an unclean stop, and the CPU of taking
and finishing pages afterwards.
"""

import gc
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import mmh3

from crawler.config import convert
from crawler.frontier.discovery import Frontier
from crawler.records import Fetch, Link, Outcome, Task
from crawler.storage.kv import LevelStore

FLUSH = 65_536  # links of one batch, as the eliminator flushes them
URL_BYTES = 77
WORDS = "section/article-title-with-words-and-more-words-and-a-number-behind"
SEED = 20260101


class Hash:
    """Host keys without a public suffix list: the domain is the last two labels."""

    def host_key(self, hostname: str) -> int:
        return _hash(domain(hostname)) >> 48 << 48 | _hash(hostname) & ((1 << 48) - 1)


def _hash(text: str) -> int:
    return int.from_bytes(mmh3.mmh3_x64_128_digest(text.encode(), SEED)[:8], "little")


def domain(hostname: str) -> str:
    return ".".join(hostname.split(".")[-2:])


def hostname(index: int) -> str:
    return f"www{index % 3}.site-{index // 2:07d}.org"


def links(urls: int, hosts: int) -> Iterator[list[Link]]:
    """Batches of distinct links."""
    rng = random.Random(SEED)
    batch = []
    for number in range(urls):
        host = number if number < hosts else int(hosts * rng.random() ** 2)
        head = f"https://{hostname(host)}/{number:x}/"
        url = head + WORDS[: max(0, rng.randint(2 * URL_BYTES - 104, 104) - len(head))]
        batch.append(Link(_hash(url), url, number * 5 // urls, number * 0x9E3779B97F4A7C15 & (1 << 64) - 1))
        if len(batch) == FLUSH:
            yield batch
            batch = []
    yield batch


def memory() -> tuple[float, float]:
    """(resident, resident without file pages), MiB."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon"))  # type: ignore[return-value]


def make(store: LevelStore) -> Frontier:
    settings = convert(
        {"crawl": {"scope": "any"}, "robots": {"policy": "ignore"}, "politeness": {"delay": 0}}
    )
    return Frontier(
        store,
        settings,
        robots=None,  # type: ignore[arg-type]  # never asked
        fingerprinter=Hash(),
        registrable_domain=domain,
        concurrency=500,
        rng=random.Random(1),
    )


def load(path: Path, urls: int, hosts: int) -> tuple[LevelStore, Frontier]:
    store = LevelStore(path)
    frontier = make(store)
    frontier.open(1e9, True)
    adding = writing = 0.0
    length = count = 0
    start = time.process_time()
    generating = 0.0
    stream = links(urls, hosts)
    peak = 0.0
    while True:
        t = time.process_time()
        chunk = next(stream, None)
        generating += time.process_time() - t
        if chunk is None:
            break
        length += sum(len(link.url) for link in chunk)
        count += len(chunk)
        batch = store.batch(sync=True)
        t = time.thread_time()
        frontier.add(chunk, batch, 1e9)
        adding += time.thread_time() - t
        t = time.thread_time()
        store.write(batch)
        writing += time.thread_time() - t
        frontier.committed(batch, 1e9)
        peak = max(peak, memory()[1])
    total = time.process_time() - start - generating
    print(f"{count} URLs of {length / count:.1f} bytes over {len(frontier._registry.hosts)} hosts")
    print(f"add {adding / count * 1e6:.2f} us a link, write {writing / count * 1e6:.2f} us")
    print(f"with LevelDB's compaction thread {total / count * 1e6:.2f} us a link")
    print(f"host table {frontier._registry.hosts!r}, domains {frontier._registry.domains!r}")
    print(f"memory: {memory()[0]:.0f} MiB resident, {memory()[1]:.0f} anonymous, peak {peak:.0f}")
    return store, frontier


def disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def pages(store: LevelStore, frontier: Frontier, count: int) -> None:
    """Take and finish pages of hosts that are all outside the front at first."""
    begun, mine = time.process_time(), time.thread_time()
    done, now, hosts = 0, 2e9, 0
    while done < count and (errand := frontier.take(now)) is not None:
        if errand.task is Task.RESOLVE:
            hosts += 1
            frontier.resolved(errand, ["10.0.0.1"], now + 3600, now)
            continue
        decision = frontier.settle(errand, Fetch(errand.url, Outcome.FETCHED, status=200), now)
        batch = store.batch(sync=False)
        frontier.stage(decision, batch)
        store.write(batch)
        frontier.release(decision, now)
        done += 1
    mine = (time.thread_time() - mine) / max(1, done) * 1e6
    total = (time.process_time() - begun) / max(1, done) * 1e6
    print(f"{done} pages of {hosts} hosts: {mine:.1f} us of CPU each, {total:.1f} with LevelDB's compaction")


def reopen(path: Path, clean: bool) -> tuple[LevelStore, Frontier]:
    gc.collect()
    wall, cpu, mine = time.perf_counter(), time.process_time(), time.thread_time()
    store = LevelStore(path)
    frontier = make(store)
    frontier.open(1e9, clean)
    wall, cpu, mine = time.perf_counter() - wall, time.process_time() - cpu, time.thread_time() - mine
    print(
        f"open clean={clean}: {wall:.2f} s, CPU {mine:.2f} s, with LevelDB's thread {cpu:.2f} s; {frontier!r}"
    )
    return store, frontier


def main() -> None:
    urls = int(float(sys.argv[1])) if len(sys.argv) > 1 else 100_000
    hosts = int(float(sys.argv[2])) if len(sys.argv) > 2 else max(1, urls // 10)
    path = Path(tempfile.mkdtemp(prefix="frontier-scale-", dir=sys.argv[3] if len(sys.argv) > 3 else None))
    try:
        print(f"before: {memory()[0]:.0f} MiB resident")
        store, frontier = load(path, urls, hosts)
        batch = store.batch(sync=True)
        frontier.flush(batch)
        store.write(batch)
        store.close()
        print(f"disk: {disk(path) / urls:.1f} bytes a URL")
        del store, frontier
        for clean in (False, True):
            store, frontier = reopen(path, clean)
            print(f"memory: {memory()[0]:.0f} MiB resident, {memory()[1]:.0f} anonymous")
            if clean:
                pages(store, frontier, 20_000)
            store.close()
            del store, frontier
    finally:
        shutil.rmtree(path)


if __name__ == "__main__":
    main()
