"""Loads URLs into the CLOCK cache, DUE and frontier of one process, in one thread.

The steps of loading are the same as in `Process`.

The stream of URLs begins with one URL of every host. Each other URL gets a random host: the host's number is
the square of a uniform random number, times the number of hosts. So the busiest tenth of the hosts gets a
third of the URLs. One link in five repeats an earlier link. URLs have 77 bytes on average.
"""

import random
import time
from collections.abc import Iterator, Sequence

import numpy as np

from crawler.process.opening.stages import Stages
from crawler.records import Link
from crawler.storage.commit import Change, Making
from crawler.urls.clock_cache import ClockCache
from crawler.urls.fingerprint import cache_keys

GROUP = 4096  # links per group; this is the number of links on about 60 pages
REPEATS = 5  # one link in `REPEATS` repeats an earlier link
URL_BYTES = 77
WORDS = "section/article-title-with-words-and-more-words-and-a-number-behind"
SEED = bytes(range(16))
MIX = 0x9E3779B97F4A7C15


def hostname(index: int) -> str:
    return f"www{index % 3}.site-{index // 2:07d}.org"


def url(number: int, hosts: int) -> str:
    """Return the URL with this number in the stream."""
    draw = number * MIX & (1 << 64) - 1
    host = number if number < hosts else int(hosts * (draw / 2.0**64) ** 2)
    head = f"https://{hostname(host)}"
    return head + tail(number, len(head))


def tail(number: int, head: int) -> str:
    """Return the path of the URL with this number. The URL's scheme and host have `head` characters."""
    draw = number * MIX & (1 << 64) - 1
    begin = f"/{number:x}/"
    return (
        begin
        + WORDS[: max(0, 2 * URL_BYTES - 104 + (draw >> 7) % (2 * (104 - URL_BYTES) + 1) - head - len(begin))]
    )


def numbers(begin: int, urls: int) -> Iterator[list[int]]:
    """Yield groups of URL numbers: `urls` numbers from `begin` on, mixed with repeats of earlier numbers."""
    rng = random.Random(SEED)
    group: list[int] = []
    for number in range(begin, begin + urls):
        group.append(number)
        if number % (REPEATS - 1) == 0:
            group.append(rng.randrange(number + 1))
        if len(group) >= GROUP:
            yield group
            group = []
    yield group


class Stopwatch:
    """Measures the CPU seconds of this thread by step, and the longest single call of each step."""

    def __init__(self) -> None:
        self.total: dict[str, float] = {}
        self.longest: dict[str, float] = {}

    def __call__(self, step: str, function, *arguments):  # type: ignore[no-untyped-def]
        begun = time.thread_time()
        outcome = function(*arguments)
        took = time.thread_time() - begun
        self.total[step] = self.total.get(step, 0.0) + took
        self.longest[step] = max(self.longest.get(step, 0.0), took)
        return outcome


class Loader:
    """Drives the stages as `Process` does, in one thread."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self.cache = ClockCache(stages.config.cache.bits)
        self.watch = Stopwatch()
        self.links = 0

    def take_in(self, urls: list[str]) -> None:
        """Load a group of links: look them up, commit the new ones, and flush if the DUE needs it."""
        self.links += len(urls)
        fingerprints = self.watch("fingerprint", self.stages.fingerprinter.fingerprints, urls)
        change = self.watch("cache", self.admit, urls, fingerprints)
        self.commit(change)
        self.flush(dry=False)

    def admit(self, urls: Sequence[str], fingerprints: np.ndarray) -> Change:
        """Return a `Change` with the links that are neither in the cache nor in the pending set."""
        change = Change()
        missed = np.flatnonzero(np.frombuffer(self.cache.add_many(cache_keys(fingerprints)), np.uint8))
        fresh = missed[self.stages.due.admit(fingerprints[missed])]
        values = fingerprints.tolist()
        change.links = [Link(values[i], urls[i], 1, values[0]) for i in fresh.tolist()]
        change.count("urls.accepted", len(urls))
        change.count("urls.cache_hits", len(urls) - len(fresh))
        return change

    def commit(self, *changes: Change, step: str = "commit") -> None:
        """Commit a group of changes durably."""
        point = self.stages.point
        for change in changes:
            point.add(change)
        group = point.take()
        self.watch(f"{step}: write", point.write, group)
        self.watch(f"{step}: committed (loop)", point.committed, group)

    def flush(self, *, dry: bool) -> None:
        commits, due = self.stages.commits, self.stages.due
        while (plan := commits.flush_begin(dry=dry)) is not None:
            self.watch("flush: join and read", plan.run)
            self.commit(self.watch("flush: frontier (loop)", whole, commits.flush_change(plan)), step="flush")
            while (merge := due.compactor.begin()) is not None:
                self.watch("merge", merge.run)
                self.commit(commits.compaction_change(merge), step="merge")


def whole(making: Making) -> Change:
    """Run all steps that build a `Change`, without a pause between them, and return the change."""
    while True:
        try:
            next(making)
        except StopIteration as end:
            change: Change = end.value
            return change
