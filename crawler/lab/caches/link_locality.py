"""The link-locality model of Broder, Najork, Wiener (2003), section 5.2: generates traces and fits the model.

URL caches suddenly become effective at some size. The paper explains this by a model of the URLs to which
links lead. T threads crawl. Each thread stays on one host for some hundreds of pages. The links of a page
are consecutive in the trace. Each link is

    repeat             already on the page, nearly always the link just before
    of the links that do not repeat:
    global  (alpha)    from a set common to all hosts, by Zipf's law
    popular (beta, L') one of few URLs that all pages of the host link to: home page, copyright
    wide    (beta, L'') from the host's wider set, in order from a random position, none twice per page
    other   (gamma)    any URL, nine of ten never seen before

Even a small cache hits for links of the kinds "repeat" and "popular". For links of the kind "wide", a cache
must hold most of the T * |L''| URLs in the wide sets of the T hosts that the threads crawl. The cache sizes
around T * |L''| are the critical region. Links of kind gamma mostly miss in a cache of any size.

In the paper, 19.5 % of the links lead to another of its four processes, but the paper does not tell which
links these are. In this model, every URL of the global set is on another host. A URL of the wide set is on
another host with probability `wide_off_host`, and a URL of kind gamma with probability `other_off_host`. A
URL on another host belongs to another process with probability (processes - 1) / processes.

`fit` finds the model of a given trace. First, `fit` counts repeats, links per page, pages per host, and
threads. Then it chooses the shares and the sizes of L' and L'' so that a synthetic trace has nearly the same
LRU miss rates as the trace at all sizes 2^0 .. 2^20 (least squares, Nelder and Mead's simplex).
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawler.errors import UsageError
from crawler.lab.caches import cache_kernels, locality_kernels
from crawler.lab.caches.traces import Trace, hosts_at_a_time
from crawler.lab.extras import require
from crawler.lab.progress_line import OnProgress, silent
from crawler.urls.trace import PAGE

_CHUNK_LINKS = 1 << 20
FIT_LINKS = 2_000_000  # number of links used for a fit; a fit takes about ten seconds per million links
_FIT_SIZES = 2 ** np.arange(21)


@dataclass(frozen=True)
class LinkLocality:
    """The parameters of the model.

    `global_share`, `popular_share` and `wide_share` are shares of the links that are not repeats.
    """

    repeat: float = 0.29
    adjacent: float = 0.97  # share of the repeats that copy the preceding link
    global_share: float = 0.02
    popular_share: float = 0.05
    wide_share: float = 0.74
    new: float = 0.9  # share of the links of kind gamma whose URLs were never seen before
    global_urls: int = 100_000
    popular_urls: int = 8
    wide_urls: int = 200
    pages_per_host: float = 300.0
    links_median: float = 23.0
    links_mean: float = 62.55
    processes: int = 4
    wide_off_host: float = 0.17
    other_off_host: float = 0.5

    def check(self) -> None:
        """Raise UsageError if the parameters are invalid."""
        shares = (self.repeat, self.adjacent, self.new, self.wide_off_host, self.other_off_host)
        parts = (self.global_share, self.popular_share, self.wide_share)
        if not all(0 <= share <= 1 for share in (*shares, *parts)) or sum(parts) > 1 or self.repeat == 1:
            raise UsageError(
                "shares must be between 0 and 1, repeat must be below 1, and global + popular + wide must be at most 1"
            )
        if (
            not 1 <= self.popular_urls + self.wide_urls < 1 << 20
            or min(self.popular_urls, self.wide_urls) < 1
        ):
            raise UsageError("popular and wide URLs must be at least 1, and fewer than 2^20 together")
        if self.pages_per_host < 1 or not 1 <= self.links_median <= self.links_mean or self.processes < 1:
            raise UsageError(
                "pages per host and processes must be at least 1, the median of links at most their mean"
            )

    @property
    def _shares(self) -> NDArray[np.float64]:
        foreign = 1 - 1 / self.processes
        origin = (
            self.repeat,
            self.adjacent,
            self.global_share,
            self.popular_share,
            self.wide_share,
            self.new,
        )
        return np.array([*origin, foreign, foreign * self.wide_off_host, foreign * self.other_off_host])

    @property
    def links_sigma(self) -> float:
        """The sigma of the lognormal number of links per page; the mean number is median * exp(sigma^2 / 2)."""
        return math.sqrt(max(0.0, 2 * math.log(self.links_mean / self.links_median)))

    @property
    def _sizes(self) -> NDArray[np.float64]:
        counts = (self.global_urls, self.popular_urls, self.wide_urls, self.pages_per_host)
        return np.array([*counts, self.links_median, self.links_sigma], np.float64)


def generate(
    model: LinkLocality, threads: int, links: int, seed: int, report: OnProgress = silent
) -> Iterator[tuple[NDArray[np.uint64], NDArray[Any]]]:
    """Yield a synthetic trace of about `links` links, in parts (words, pages): two arrays for about 10^6 links."""
    state = np.array([seed, cache_kernels.mixed(seed ^ 0x5EED)], np.uint64)
    counters = np.array([threads, 0], np.int64)
    hosts = np.arange(threads, dtype=np.int64)
    made = 0
    while made < links:
        room = min(_CHUNK_LINKS, links - made) + locality_kernels.PAGE_LINKS_MAX
        words = np.empty(room, np.uint64)
        columns = np.empty(room, np.uint64), np.empty(room, np.uint32), np.empty(room, np.uint32)
        n, pages = locality_kernels.make_pages(
            model._shares, model._sizes, state, counters, hosts, words, *columns
        )
        records: NDArray[Any] = np.empty(pages, PAGE)
        records["host"], records["links"], records["thread"] = (column[:pages] for column in columns)
        made += n
        report(made / links)
        yield words[:n], records


def synthetic_words(model: LinkLocality, threads: int, links: int, seed: int) -> NDArray[np.uint64]:
    """Return exactly `links` words of a synthetic trace, in memory."""
    return np.concatenate([words for words, _ in generate(model, threads, links, seed)])[:links]


@dataclass(frozen=True)
class Fit:
    """The model fitted to a trace, and the LRU miss rates of the model and of the trace at 2^0 .. 2^20."""

    model: LinkLocality
    threads: int
    measured: NDArray[np.float64]
    fitted: NDArray[np.float64]

    @property
    def error(self) -> float:
        """The root mean square difference of the miss rates."""
        return float(np.sqrt(np.mean((self.measured - self.fitted) ** 2)))

    def describe(self) -> str:
        """Return the parameters and the error in one line."""
        model = self.model
        other = 1 - model.global_share - model.popular_share - model.wide_share
        return (
            f"repeats {model.repeat:.3f} ({model.adjacent:.2f} of the link before); of the others global"
            f" {model.global_share:.3f}, popular {model.popular_share:.3f} of {model.popular_urls} URLs, wide"
            f" {model.wide_share:.3f} of {model.wide_urls} URLs, any {other:.3f};"
            f" {model.pages_per_host:.0f} pages per host; RMS difference of miss rates {self.error:.4f}"
        )


def counted(trace: Trace, threads: int = 0) -> tuple[LinkLocality, int]:
    """Determine the parameters that can be counted in the trace.

    Return (model with these parameters, number of threads).
    """
    ids, distinct = cache_kernels.dense_ids(trace.words())
    repeats, adjacent = locality_kernels.repeats_on_pages(ids, distinct, trace.starts)
    sizes = np.diff(trace.starts)
    hosts = len(np.unique(trace.pages["host"]))
    at_a_time = threads or max(1, round(hosts_at_a_time(trace.pages["host"])))
    # A host is finished when its thread moves to another host. Hosts that are not finished at the end of the
    # trace are not counted.
    per_host = len(sizes) / max(1, hosts - at_a_time)
    model = LinkLocality(
        repeat=float(repeats / max(1, len(ids) - len(sizes))),  # the first link of a page cannot be a repeat
        adjacent=float(adjacent / max(1, repeats)),
        pages_per_host=per_host,
        links_median=float(np.median(sizes)),
        links_mean=float(max(sizes.mean(), np.median(sizes))),
    )
    return model, at_a_time


def lru_rates(words: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Return the miss rates of LRU at the sizes 2^0 .. 2^20."""
    ids, distinct = cache_kernels.dense_ids(words)
    return cache_kernels.lru_misses(ids, distinct, _FIT_SIZES, 1).sum(axis=1) / len(words)


def fit(
    trace: Trace, *, threads: int = 0, seed: int = 1, evaluations: int = 120, report: OnProgress = silent
) -> Fit:
    """Fit the model to the first `FIT_LINKS` links of a trace; compare it with `evaluations` synthetic traces."""
    optimize = require("scipy.optimize")
    trace = trace.head(FIT_LINKS)
    start, threads = counted(trace, threads)
    measured = lru_rates(trace.words())

    compared = itertools.count(1)

    def rates(point: NDArray[np.float64]) -> NDArray[np.float64]:
        report(next(compared) / (evaluations + 1))
        return lru_rates(synthetic_words(_at(start, point), threads, len(trace.links), seed))

    found = optimize.minimize(
        lambda point: float(np.mean((rates(point) - measured) ** 2)),
        _point(start),
        method="Nelder-Mead",
        options={"maxfev": evaluations, "xatol": 0.01, "fatol": 1e-8, "initial_simplex": _simplex(start)},
    )
    return Fit(_at(start, found.x), threads, measured, rates(found.x))


def _point(model: LinkLocality) -> NDArray[np.float64]:
    """Return the fitted parameters as unbounded numbers: log odds of shares, logs of the sizes of L' and L''."""
    other = 1 - model.global_share - model.popular_share - model.wide_share
    shares = np.array([model.global_share, model.popular_share, model.wide_share])
    return np.concatenate([np.log(shares / other), np.log([model.popular_urls, model.wide_urls])])


def _simplex(model: LinkLocality) -> NDArray[np.float64]:
    point = _point(model)
    return np.vstack([point, point + 0.7 * np.eye(len(point))])


def _at(model: LinkLocality, point: NDArray[np.float64]) -> LinkLocality:
    odds = np.exp(np.clip(point[:3], -12, 12))
    alpha, popular, wide = odds / (1 + odds.sum())
    sizes = np.exp(np.clip(point[3:], 0, math.log(1 << 19)))
    return replace(
        model,
        global_share=float(alpha),
        popular_share=float(popular),
        wide_share=float(wide),
        popular_urls=round(sizes[0]),
        wide_urls=round(sizes[1]),
    )
