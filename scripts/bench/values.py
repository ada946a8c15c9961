"""Measure the time to compute a crawl value, its inverse, and the learning from a crawl.

    python scripts/bench/values.py

For each nu/Delta, the script prints the worst and the median time over recalls, states and levels. For
comparison, the same run measures compiled code that sums the series of the paper term by term, up to 20,000
terms. The ratio shows how much time the closed forms save. Then the script measures all corners of the
domain: recall and precision 0 to 1, nu/Delta 1e-12 to 1e12, and an elapsed time of 0 to infinity. The time
limits are 20 us per value and 200 us per inverse.
"""

import itertools
import math
import time
from collections.abc import Callable

import numpy as np

from crawler.bench import harness
from crawler.freshness.learning import Learning
from crawler.freshness.params import PageParameters
from crawler.freshness.residuals import residual
from crawler.lab.refresh import crawl_value as cv

RECALLS = (0.01, 0.3, 0.7, 0.9, 0.98, 0.999, 1 - 1e-6)
STALENESSES = (1e-3, 0.1, 0.7, 3.0, 15.0)
LEVELS = (1e-3, 0.1, 0.5, 0.9, 0.999)
REFERENCE_TERMS_MAX = 20_000


def least(call: Callable[[], object], times: int = 3) -> float:
    """Measure a call several times and return the smallest time in microseconds: the cost without disturbance."""
    best = math.inf
    for _ in range(times):
        started = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - started)
    return best * 1e6


def direct(page: PageParameters, at: float) -> float:
    """Return V by the formula in the paper, the difference of two sums of residuals."""
    alpha, gamma, nu, beta = page.silent_rate, page.signal_rate, page.false_rate, page.signal_time
    event_rate, step = alpha + gamma, nu / (alpha + gamma)
    psi = w = 0.0
    power = 1.0 / event_rate
    for i in range(REFERENCE_TERMS_MAX):
        x = at - i * beta
        if x <= 0.0:
            break
        psi += residual(i, gamma * x) / gamma
        w += power * residual(i, event_rate * x)
        power *= step
    return page.importance * (w - math.exp(-alpha * at) * psi)


def rows() -> None:
    table = harness.Table(
        "nu/Delta",
        "value us: worst",
        "median",
        "inverse us: worst",
        "median",
        "direct sum us",
        "direct / value",
    )
    for power in range(-3, 13, 3):
        nu = 10.0**power
        values, inverses, sums = [], [], []
        for recall in RECALLS:
            page = PageParameters(1.0, 1.0, recall, nu)
            parameters = cv.parameters_of(page)
            for u in STALENESSES:
                at = u / page.silent_rate
                values.append(least(lambda p=parameters, at=at: p.value(at, 0.0)))  # type: ignore[misc]
            for level in LEVELS:
                inverses.append(
                    least(lambda p=parameters, level=level: p.wait(level, 0.0, 0.0, 1e-6))  # type: ignore[misc]
                )
            sums.append(least(lambda page=page: direct(page, 0.7 / page.silent_rate), 1))  # type: ignore[misc]
        worst, reference = max(values), max(sums)
        medians = float(np.median(values)), float(np.median(inverses))
        table.row(f"{nu:.0e}", worst, medians[0], max(inverses), medians[1], reference, reference / worst)


def corners() -> None:
    """Print the worst times over the whole domain."""
    recalls = (
        0.0,
        1e-12,
        1e-6,
        1e-3,
        0.1,
        0.5,
        0.9,
        0.98,
        0.997,
        1 - 1e-4,
        1 - 1e-6,
        1 - 1e-9,
        1 - 1e-12,
        1.0,
    )
    rates = (0.0, *(10.0 ** (k / 2) for k in range(-24, 25)))
    stale = (0.0, *(10.0**k for k in range(-12, 4)), math.inf)
    levels = (1e-12, 1e-6, 1e-3, 0.2, 0.5, 0.97, 0.999, 1 - 1e-9, 1 - 1e-15)
    value = inverse = (0.0, "")
    states = 0
    for recall, nu in itertools.product(recalls, rates):
        page = PageParameters(1.0, 1.0, recall, nu)
        parameters = cv.parameters_of(page)
        scale = page.silent_rate or 1.0
        for u, n in itertools.product(stale, (0.0, 7.0)):
            states += 1
            took = least(lambda p=parameters, at=u / scale, n=n: p.value(at, n))  # type: ignore[misc]
            value = max(value, (took, f"recall {recall:g}, nu/Delta {nu:.2g}, u {u:g}, n {n:g}"))
        for level, n, tolerance in itertools.product(levels, (0.0, 3.0), (1e-6, 1e-15)):
            states += 1
            took = least(
                lambda p=parameters, level=level, n=n, t=tolerance: p.wait(level, n, 0.0, t)  # type: ignore[misc]
            )
            inverse = max(
                inverse,
                (took, f"recall {recall:g}, nu/Delta {nu:.2g}, level {level:g}, n {n:g}, {tolerance:g}"),
            )
    print(f"worst of {states:,} corners: value {value[0]:.1f} us ({value[1]})")
    print(f"                            inverse {inverse[0]:.1f} us ({inverse[1]})")


def learning() -> None:
    """Print how long a call from Python takes to learn from one crawl."""
    learned = Learning()
    sites = [learned.add_site() for _ in range(1_000)]
    directories = [learned.add_directory() for _ in range(10_000)]
    counts, count = np.zeros(8), 100_000

    def a_crawl() -> float:
        """Return the number of microseconds that learning from one crawl takes."""
        started = time.perf_counter()
        for crawl in range(count):
            site, directory = sites[crawl % 1_000], directories[crawl % 10_000]
            learned.observe(site, directory, 1.0, 8e6, 1e6, crawl * 10.0, counts, crawl % 3 == 0)
        return (time.perf_counter() - started) / count * 1e6

    took = a_crawl()
    counts[0] = 2.0
    for site in sites:
        learned.quality.note_signal(site, 0)
    told = a_crawl()
    print(f"learning from a crawl: {took:.2f} us, with signals {told:.2f} us, called from Python")


if __name__ == "__main__":
    rows()
    corners()
    learning()
