"""Figures 2 to 11 of Broder, Najork, Wiener (2003), and figures for the open questions of its section 7.

The figures are drawn from a synthetic trace of the link-locality model, or from a user's trace (`crawler lab
cache TRACE --figures DIR`). The paper's traces are of a crawl of 33 days with 500 threads, and of two short
crawls with 100 and 20 threads.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawler.lab.caches import crawl_order, link_locality, url_caches
from crawler.lab.caches.link_locality import LinkLocality
from crawler.lab.caches.traces import Trace
from crawler.lab.caches.url_caches import BITS_MAX, PAPER_POLICIES, Stream, misses
from crawler.lab.figures.drawing import Drawing, Options, sheet
from crawler.urls.trace import is_cross

BITS = range(BITS_MAX + 1)
THREADS = (500, 100, 20)  # the paper's three crawls
TIME_BITS = 18  # base-2 logarithm of the cache size in figures 10 and 11
TIME_BINS = 50
SYNTHETIC = "synthetic trace of the link-locality model"
LINKS, LINKS_QUICK = 10_000_000, 1_000_000

STYLES: dict[str, dict[str, Any]] = {
    "INFINITE": {"color": "#999999", "ls": "--", "zorder": 5},
    "MIN": {"color": "#000000"},
    "LRU": {"color": "#0072B2", "marker": "o"},
    "CLOCK": {"color": "#D55E00", "marker": "^"},
    "RANDOM": {"color": "#009E73", "marker": "s"},
    "STATIC": {"color": "#CC79A7", "marker": "v"},
    "TABLE": {"color": "#5E3C99", "marker": "x"},
}
MARKS = ("o", "^", "s", "v", "D")
LINE = {"lw": 1.3, "ms": 4, "markerfacecolor": "none"}


class Material:
    """Traces and simulation results. They are cached, so figures with the same curves share the work.

    Args:
        traces: traces by number of threads; figures 2 to 5, 10 and 11 use the first. If empty, traces are synthetic.
        links: the number of links of each synthetic trace.
    """

    def __init__(self, traces: dict[int, Trace], links: int, seed: int) -> None:
        self.seed = seed
        self.links = links
        self.own = bool(traces)
        self.threads = tuple(traces) or THREADS
        self._traces = traces
        self._streams: dict[tuple[int, str], Stream] = {}
        self._rates: dict[tuple[int, str, str, int], NDArray[np.float64]] = {}

    def trace(self, threads: int) -> Trace:
        """Return the trace with this number of threads. A synthetic trace is generated on first use."""
        if threads not in self._traces:
            parts = link_locality.generate(LinkLocality(), threads, self.links, self.seed)
            self._traces[threads] = Trace.joined(parts, {"source": SYNTHETIC, "threads": threads})
        return self._traces[threads]

    def stream(self, threads: int, kind: str) -> Stream:
        """Return the full trace, or only its links to other processes ("cross").

        Only the last result stays in memory.
        """
        if (threads, kind) not in self._streams:
            self._streams = {(threads, kind): Stream(self.trace(threads).words(kind), kind)}
        return self._streams[threads, kind]

    def rates(self, threads: int, kind: str, policy: str) -> NDArray[np.float64]:
        """Return the miss rates at the sizes 2^0 to 2^25."""
        return self._simulated(threads, kind, policy, [1 << bits for bits in BITS], 1)[:, 0]

    def over_time(self, threads: int, kind: str, policy: str) -> NDArray[np.float64]:
        """Return the miss rates of a cache of 2^18 entries in each of 50 windows of time."""
        return self._simulated(threads, kind, policy, [1 << TIME_BITS], TIME_BINS)[0]

    def _simulated(
        self, threads: int, kind: str, policy: str, sizes: list[int], bins: int
    ) -> NDArray[np.float64]:
        key = threads, kind, policy, bins
        if key not in self._rates:
            stream = self.stream(threads, kind)
            widths = [window.stop - window.start for window in stream.windows(bins)]
            found = misses(policy, stream, sizes, bins=bins, seed=self.seed)
            self._rates[key] = found / np.maximum(widths, 1)
        return self._rates[key]

    def caption(self, threads: int, kind: str) -> str:
        """Return a caption that states the name of the trace and its length."""
        return f"{self.trace(threads).name}, {_kind(kind)}, {self.requests(threads, kind):,} requests"

    def requests(self, threads: int, kind: str) -> int:
        """Return the number of requests in the trace or in its sub-trace."""
        trace = self.trace(threads)
        return int(is_cross(trace.links).sum()) if kind == "cross" else len(trace.links)


@lru_cache(maxsize=1)
def _synthetic(links: int, seed: int) -> Material:
    return Material({}, links, seed)


Given = Options | Material


def material(source: Given) -> Material:
    """Return `source` if it is material for the figures; if it is a set of options, make synthetic material from them."""
    if isinstance(source, Material):
        return source
    return _synthetic(LINKS_QUICK if source.quick else LINKS, source.seed)


def _axes(title: str, source: str) -> tuple[Any, Any]:
    figure, axes = sheet(8.0, 5.2)
    axes.set_title(f"{title}\n({source})", fontsize=11)
    axes.grid(alpha=0.3)
    return figure, axes


def _size_axis(axes: Any, bits: Sequence[int] = BITS) -> None:
    axes.set_xticks(list(bits)[::2], [f"$2^{{{b}}}$" for b in list(bits)[::2]])
    axes.set(xlabel="cache size k (entries)", xlim=(min(bits) - 0.3, max(bits) + 0.3))


def _percent_axis(axes: Any, top: float = 100.0) -> None:
    axes.set(ylabel="miss rate (% of all requests)", ylim=(0, top))


def _rows(curves: Mapping[str, NDArray[np.float64]], xs: Sequence[object]) -> list[list[object]]:
    return [[name, x, float(y)] for name, curve in curves.items() for x, y in zip(xs, curve, strict=True)]


def _over_sizes(
    what: str,
    curves: Mapping[str, NDArray[np.float64]],
    title: str,
    source: str,
    caption: str,
    bits: Sequence[int],
    measure: str = "miss_rate",
) -> Drawing:
    """Draw curves over the cache size, one per name. `what` is the column of the names in the table of the data."""
    figure, axes = _axes(title, source)
    scale = 100 if measure == "miss_rate" else 1
    for (name, curve), mark in zip(curves.items(), MARKS * len(curves), strict=False):
        axes.plot(bits, scale * curve, label=name, **LINE, **STYLES.get(name, {"marker": mark}))
    _size_axis(axes, bits)
    _percent_axis(axes)
    axes.legend(fontsize=9)
    return Drawing(figure, [what, "bits", measure], _rows(curves, bits), caption)


def miss_rates(stuff: Material, kind: str, number: int) -> Drawing:
    """Draw Figure 2 or 4: miss rate over cache size, six policies."""
    threads = stuff.threads[0]
    curves = {policy: stuff.rates(threads, kind, policy) for policy in PAPER_POLICIES}
    found = _over_sizes(
        "policy",
        curves,
        f"Miss rate over cache size, {_kind(kind)}",
        f"Broder et al., Figure {number}",
        stuff.caption(threads, kind)
        + f", {threads} threads. Loading STATIC is free. Critical region: 10 to 90 % of CLOCK's fall.",
        BITS,
    )
    if knee := url_caches.knee(BITS, curves["CLOCK"].tolist()):
        (axes,) = found.figure.axes
        axes.axvspan(
            knee.begin_bits, knee.end_bits, color="#F0E442", alpha=0.25, lw=0, label="critical region"
        )
        axes.legend(fontsize=9)
    return found


def relative_miss_rates(stuff: Material, kind: str, number: int) -> Drawing:
    """Draw Figure 3 or 5: miss rate over cache size, relative to MIN."""
    threads = stuff.threads[0]
    best = stuff.rates(threads, kind, "MIN")
    found = _over_sizes(
        "policy",
        {name: stuff.rates(threads, kind, name) / best for name in PAPER_POLICIES if name != "INFINITE"},
        f"Miss rate relative to MIN, {_kind(kind)}",
        f"Broder et al., Figure {number}",
        stuff.caption(threads, kind)
        + f", {threads} threads. STATIC leaves the figure above 2; it falls below 1"
        " because loading it is free.",
        BITS,
        "relative_miss_rate",
    )
    found.figure.axes[0].set(ylabel="misses / misses of MIN", ylim=(0.8, 2.0))
    return found


def by_threads(stuff: Material, kind: str, number: int, *, per_thread: bool) -> Drawing:
    """Draw Figures 6 to 9: miss rate of CLOCK over the cache size (total or per thread), by number of threads."""
    what = "cache size per thread" if per_thread else "cache size"
    figure, axes = _axes(f"Miss rate of CLOCK over {what}, {_kind(kind)}", f"Broder et al., Figure {number}")
    rows: list[list[object]] = []
    for k, threads in enumerate(stuff.threads):
        curve = stuff.rates(threads, kind, "CLOCK")
        places = np.array(BITS) - (np.log2(threads) if per_thread else 0.0)
        axes.plot(places, 100 * curve, label=f"{threads} threads", marker=MARKS[k % len(MARKS)], **LINE)
        xs = 2.0**places if per_thread else BITS
        rows += [[threads, float(x), float(y)] for x, y in zip(xs, curve, strict=True)]
    if per_thread:
        shown = range(-8, 22, 2)
        axes.set_xticks(shown, [f"$2^{{{b}}}$" for b in shown])
        axes.set(xlabel="cache size k / threads (entries)", xlim=(-9.3, 21))
        axes.axvspan(
            np.log2(100), np.log2(500), color="#F0E442", alpha=0.25, lw=0, label="100 to 500 a thread"
        )
    else:
        _size_axis(axes)
    _percent_axis(axes)
    axes.legend(fontsize=9)
    counts = [f"{threads} threads: {stuff.requests(threads, kind):,}" for threads in stuff.threads]
    columns = ["threads", "entries_per_thread" if per_thread else "bits", "miss_rate"]
    return Drawing(figure, columns, rows, f"{stuff.caption(stuff.threads[0], kind)} ({', '.join(counts)}).")


def over_time(stuff: Material, kind: str, number: int) -> Drawing:
    """Draw Figure 10 or 11: miss rate of a cache of 2^18 entries over time."""
    threads = stuff.threads[0]
    figure, axes = _axes(
        f"Miss rate over time, $2^{{{TIME_BITS}}}$ entries, {_kind(kind)}", f"Broder et al., Figure {number}"
    )
    curves = {policy: stuff.over_time(threads, kind, policy) for policy in PAPER_POLICIES}
    ends = [window.stop / 1e6 for window in stuff.stream(threads, kind).windows(TIME_BINS)]
    for k, (policy, curve) in enumerate(curves.items()):
        # The curves overlap, so their marks are staggered.
        axes.plot(ends, 100 * curve, label=policy, markevery=(k, len(curves)), **LINE, **STYLES[policy])
    axes.set(xlabel="requests so far (millions)", xlim=(0, ends[-1]))
    _percent_axis(axes, min(100.0, 110 * max(float(curve.max()) for curve in curves.values())))
    axes.legend(fontsize=9, ncols=2)
    return Drawing(
        figure,
        ["policy", "requests_million", "miss_rate"],
        _rows(curves, ends),
        stuff.caption(threads, kind) + f", {threads} threads; each point is one of {TIME_BINS} equal windows."
        " Loading STATIC is free; later curves may cover earlier ones.",
    )


def crawl_orders(stuff: Material, kind: str = "full") -> Drawing:
    """Draw the answer to the first question of section 7: miss rates of the same pages in other orders."""
    threads = stuff.threads[0]
    trace = stuff.trace(threads)
    found = crawl_order.by_order(trace, [1 << bits for bits in BITS], stream=kind, seed=stuff.seed)
    requests = max(1, len(trace.words(kind)))
    return _over_sizes(
        "order",
        {name: values / requests for name, values in found.items()},
        f"Miss rate of CLOCK by crawl order, {_kind(kind)}",
        "Broder et al., section 7, first question",
        stuff.caption(threads, kind)
        + f", {threads} threads. Pages are reordered; the links of each page stay together.",
        BITS,
    )


def caches_a_thread(stuff: Material, kind: str = "full") -> Drawing:
    """Draw the answer to the second question of section 7: a global cache compared with one cache per thread."""
    threads = stuff.threads[0]
    trace = stuff.trace(threads)
    bits = [b for b in BITS if 1 << b >= threads]
    apart = crawl_order.one_cache_a_thread(trace, [1 << b for b in bits], threads, stream=kind)
    return _over_sizes(
        "caches",
        {
            "one global cache of k": stuff.rates(threads, kind, "CLOCK")[bits],
            f"{threads} caches of k / {threads}": apart / max(1, len(trace.words(kind))),
        },
        f"One CLOCK cache per thread or a global one, {_kind(kind)}",
        "Broder et al., section 7, second question",
        stuff.caption(threads, kind) + ".",
        bits,
    )


def fitted_model(stuff: Material) -> Drawing:
    """Draw the answer to the third question of section 7: the link-locality model fitted to a trace."""
    threads = stuff.threads[0]
    trace = stuff.trace(threads).head(link_locality.FIT_LINKS)
    fit = link_locality.fit(trace, threads=0 if stuff.own else threads, seed=stuff.seed + 1)
    return _over_sizes(
        "curve",
        {"trace": fit.measured, "fitted model": fit.fitted},
        "Miss rate of LRU: a trace and the link-locality model fitted to it",
        "Broder et al., section 7, third question",
        f"{trace.name}, {len(trace.links):,} requests, {fit.threads} threads. Fitted: {fit.describe()}.",
        range(len(fit.measured)),
    )


def _kind(kind: str) -> str:
    return "cross sub-trace" if kind == "cross" else "full trace"


def _drawing(draw: Callable[..., Drawing], *about: Any, **how: Any) -> Callable[[Given], Drawing]:
    """Return a figure: a function that turns its argument into `Material` and passes this to `draw`."""
    return lambda source: draw(material(source), *about, **how)


# The figures of `crawler lab cache --figures` and of `lab figures`.
DRAWINGS = {
    "broder-2": _drawing(miss_rates, "full", 2),
    "broder-3": _drawing(relative_miss_rates, "full", 3),
    "broder-4": _drawing(miss_rates, "cross", 4),
    "broder-5": _drawing(relative_miss_rates, "cross", 5),
    "broder-6": _drawing(by_threads, "full", 6, per_thread=False),
    "broder-7": _drawing(by_threads, "cross", 7, per_thread=False),
    "broder-8": _drawing(by_threads, "full", 8, per_thread=True),
    "broder-9": _drawing(by_threads, "cross", 9, per_thread=True),
    "broder-10": _drawing(over_time, "full", 10),
    "broder-11": _drawing(over_time, "cross", 11),
    "crawl-order": _drawing(crawl_orders),
    "cache-per-thread": _drawing(caches_a_thread),
    "link-locality": _drawing(fitted_model),
}
