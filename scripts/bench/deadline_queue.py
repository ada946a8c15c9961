"""Picks per CPU second of the deadline queue, and its accuracy against exact greedy.

    python scripts/bench/deadline_queue.py [PAGES] [PICKS]

PAGES (default 1,000,000) noisy pages of the paper's experiments, a tenth of
them crawled per unit of time, so that about six signals come for each pick. The
queue first runs in for one pick a page, then PICKS (500,000) are timed; drawing
the signals is not. A heapq of (deadline, page) that only pops and pushes, with
the same calls, is the reference of the same run. Then 2,000 pages: accuracy
after a warm-up of the queue, of exact greedy, and of no signals.
"""

import heapq
import sys
import time

import numpy as np

from crawler.freshness.params import Pages
from crawler.lab.refresh.deadline_queue import DeadlineQueue
from crawler.lab.refresh.simulate import ExperimentSetting, experiment, mean_and_error, standard_pages


class PlainHeap:
    """What any queue must do at least: take the earliest, put it back with a fixed interval."""

    def __init__(self, size: int) -> None:
        self._heap = [(k / size, k) for k in range(size)]

    def signal(self, page: int, now: float) -> None:
        pass

    def take(self, now: float) -> int:
        return heapq.heappop(self._heap)[1]

    def settle(self, page: int, now: float) -> None:
        heapq.heappush(self._heap, (now + 10.0, page))


def drive(queue: object, pages: Pages, begin: float, picks: int, rng: np.random.Generator) -> float:
    """CPU seconds of `picks` picks and the signals of their time, from `begin` on."""
    rate = len(pages) / 10.0
    ticks = begin + np.arange(1, picks + 1) / rate
    edges = np.cumsum(pages.signal_rate)
    count = rng.poisson(edges[-1] * picks / rate)
    times = np.sort(rng.uniform(begin, ticks[-1], count)).tolist()
    who = np.minimum(np.searchsorted(edges, rng.random(count) * edges[-1]), len(pages) - 1).tolist()
    signal, take, settle = queue.signal, queue.take, queue.settle  # type: ignore[attr-defined]
    instants = ticks.tolist()
    started, k = time.process_time(), 0
    for now in instants:
        while k < count and times[k] <= now:
            signal(who[k], times[k])
            k += 1
        settle(take(now), now)
    return time.process_time() - started


def main(size: int, picks: int) -> None:
    rng = np.random.default_rng(1)
    pages = standard_pages(rng, size)
    started = time.process_time()
    queue = DeadlineQueue.of(pages, level=0.98)
    print(f"{size:,} pages put in: {time.process_time() - started:.1f} CPU s")
    part, begin = max(size // 4, 1), 0.0
    for _ in range(4):
        drive(queue, pages, begin, part, rng)
        begin += part * 10.0 / size
    solved = queue.solutions
    took = drive(queue, pages, begin, picks, rng)
    plain = drive(PlainHeap(size), pages, begin, picks, rng)
    print(f"queue      {picks / took:,.0f} picks per CPU second, {took / picks * 1e6:.1f} us a pick")
    print(f"plain heap {picks / plain:,.0f} picks per CPU second, {plain / picks * 1e6:.1f} us a pick")
    print(f"ratio {took / plain:.2f}; {(queue.solutions - solved) / picks:.2f} solved a pick; {queue}")
    setting = ExperimentSetting(bandwidth=((0.0, 200.0),), horizon=200.0, bins=20)
    names = ["ncis", "queue", "baseline"]
    found = experiment(names, lambda rng: standard_pages(rng, 2000), setting, 6, 1)
    for name in names:
        mean, error = mean_and_error([result[name].settled for result in found])
        paired = mean_and_error([result[name].settled - result["ncis"].settled for result in found])
        print(f"2,000 pages, {name:<8} {mean:.4f} +- {error:.4f}; - ncis {paired[0]:+.5f} +- {paired[1]:.5f}")


if __name__ == "__main__":
    main(*(int(float(word)) for word in (sys.argv[1:] + ["1000000", "500000"][len(sys.argv) - 1 :])))
