"""The refresh simulator: runs policies by name on drawn pages and events, which are the same for all policies.

`lab/README.md`, "Conventions of the testbed" describes the conventions, which are those of Busa-Fekete et al.,
section 6. Accuracy is not sampled from requests but integrated exactly between events (`replay.py`).

The policies greedy, cis, cis-nu0, ncis, approx-J and cis+ choose the page with the greatest value of that
name (`crawl_value.py`). `ncis-d` is ncis, but drops signals within 5 ticks after a crawl. `lds` is Algorithm
3 on the optimal rates, and `azar` is Algorithm 3 on the rates of Algorithm 2. `random` draws pages in
proportion to the optimal rates. `baseline` and `optimum` have no schedule: they are the accuracies of the
optimal continuous rates without and with signals.

A run may differ from the model: signals may be delayed, the bandwidth may change, and policies may assume
wrong parameters. `crawler lab worlds` and `crawler lab league` simulate changes that are not a Poisson
process, and a crawler that learns.
"""

from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from crawler.errors import UsageError
from crawler.freshness.params import Pages
from crawler.lab.progress_line import OnProgress, silent
from crawler.lab.refresh import policies
from crawler.lab.refresh.crawl_value import kind_of
from crawler.lab.refresh.exact_greedy import ExactGreedy
from crawler.lab.refresh.replay import ARRIVED, EMITTED, Replay
from crawler.wording import not_one_of

DISCARD_TICKS = 5.0  # T_DELAY = 5/R (Appendix C of Busa-Fekete et al.)
WARMUP = 0.2
# kinds of signals, each with the mean number of signals and changes per page of `standard_pages` and unit of time
EVENT_RATES = {"none": 0.5, "perfect": 0.75, "noisy": 1.1}
EVENTS_MAX = 200_000_000  # maximum number of events per run; 200 million events take 5 GB
POLICIES = (
    "baseline",
    "optimum",
    "lds",
    "azar",
    "random",
    "greedy",
    "cis",
    "cis-nu0",
    "ncis",
    "ncis-d",
    "approx-1",
    "approx-2",
    "cis+",
)


def standard_pages(rng: np.random.Generator, size: int, signals: str = "noisy") -> Pages:
    """Draw the pages of the paper's experiments. `signals` is none, perfect (no false signals) or noisy."""
    importance, change_rate = rng.random(size), rng.random(size)
    recall = rng.beta(0.25, 0.25, size) if signals != "none" else np.zeros(size)
    false_rate = rng.uniform(0.1, 0.6, size) if signals == "noisy" else np.zeros(size)
    return Pages(importance, change_rate, recall, false_rate)


def real_world_pages(rng: np.random.Generator, size: int, labelled: np.ndarray | None = None) -> Pages:
    """Draw pages like the data of Kolobov et al. (2019), with signals as in Busa-Fekete et al., Figure 1.

    Change rates are log-normal with median 0.1 per day and sigma 1.3. They are limited to the range from
    0.0005 to 7 per day. The precision is drawn from Beta(1.3, 2.83), the recall from Beta(1.3, 3.75). 5 % of
    the pages are labelled, and have 26.4 % of the importance. The precision and recall of labelled pages are
    drawn from the highest 5 % of the distributions, those of the other pages from the rest. Unless `labelled`
    (m,) is given, it is drawn at random.
    """
    change_rate = np.clip(0.1 * np.exp(1.3 * rng.standard_normal(size)), 0.0005, 7.0)
    labelled = rng.random(size) < 0.05 if labelled is None else labelled
    precision = _split_sample(rng, labelled, 1.3, 2.83)
    recall = _split_sample(rng, labelled, 1.3, 3.75)
    importance = rng.exponential(1.0, size)
    if labelled.any() and not labelled.all():
        importance[labelled] *= 0.264 * importance[~labelled].sum() / (0.736 * importance[labelled].sum())
    return Pages.from_quality(importance, change_rate, precision, recall)


def _split_sample(rng: np.random.Generator, labelled: np.ndarray, a: float, b: float) -> np.ndarray:
    """Draw from Beta(a, b). For labelled pages, draw from its upper 5 %, and for the other pages from the rest."""
    pool = np.sort(rng.beta(a, b, 200_000))
    cut = int(0.95 * len(pool))
    low, high = rng.integers(0, cut, len(labelled)), rng.integers(cut, len(pool), len(labelled))
    return np.clip(pool[np.where(labelled, high, low)], 1e-3, 1.0 - 1e-9)


def corrupted(rng: np.random.Generator, pages: Pages, share: float) -> Pages:
    """Return the wrong parameters that a policy assumes.

    Each precision or recall p becomes (1 - share) p + share z, where z ~ U(0, 1).
    """
    if share == 0.0:
        return pages
    noise = rng.random((2, len(pages)))
    precision = (1.0 - share) * pages.precision + share * noise[0]
    recall = (1.0 - share) * pages.recall + share * noise[1]
    return Pages.from_quality(pages.importance, pages.change_rate, precision, recall)


class ExperimentSetting(msgspec.Struct, frozen=True):
    """The settings shared by all instances of an experiment.

    `bandwidth` holds pairs (start time, crawls per unit of time). A signal arrives after a Poisson number of
    ticks with the mean `delay`.
    """

    bandwidth: tuple[tuple[float, float], ...] = ((0.0, 100.0),)
    horizon: float = 1000.0
    bins: int = 50
    delay: float = 0.0

    @property
    def tick(self) -> float:
        return 1.0 / self.bandwidth[0][1]

    def _spans(self) -> Iterator[tuple[float, float, float]]:
        """Yield (begin, end, bandwidth) of each part of the run."""
        ends = [begin for begin, _ in self.bandwidth[1:]] + [self.horizon]
        for (begin, rate), end in zip(self.bandwidth, ends, strict=True):
            if begin < self.horizon:
                yield begin, min(end, self.horizon), rate

    @property
    def crawls(self) -> float:
        """The number of crawls in a run, before rounding."""
        return sum((end - begin) * rate for begin, end, rate in self._spans())

    def ticks(self) -> np.ndarray:
        """Return the instants of the crawls."""
        return np.concatenate(
            [
                begin + np.arange(1, round((end - begin) * rate) + 1) / rate
                for begin, end, rate in self._spans()
            ]
        )


class Events(msgspec.Struct, frozen=True):
    """The signals of a drawn run, in order of time."""

    times: np.ndarray
    pages: np.ndarray
    whats: np.ndarray


def check_events(expected: float) -> None:
    """Raise UsageError if this many signals and changes are too many for a run."""
    if not expected < EVENTS_MAX:
        raise UsageError(
            f"a run of {expected:.3g} signals and changes is too long; the limit is {EVENTS_MAX:,}"
        )


def draw_events(rng: np.random.Generator, pages: Pages, setting: ExperimentSetting) -> Events:
    """Draw signals until the horizon.

    Raises:
        UsageError: there would be more than EVENTS_MAX signals.
    """
    check_events(setting.horizon * float((pages.signal_rate + pages.change_rate).sum()))
    times, who = _poisson_times(rng, pages.signal_rate, setting.horizon)
    arrival = times
    if setting.delay > 0.0:
        arrival = arrival + rng.poisson(setting.delay, len(arrival)) * setting.tick
    return Events(*_merged([(times, who, EMITTED), (arrival, who, ARRIVED)]))


def _merged(parts: list[tuple[np.ndarray, np.ndarray, int]]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all events in order of time. Events of the same instant stay in the given order."""
    times = np.concatenate([part[0] for part in parts])
    pages = np.concatenate([part[1] for part in parts]).astype(np.int32)
    whats = np.concatenate([np.full(len(part[0]), part[2], dtype=np.int8) for part in parts])
    order = np.argsort(times, kind="stable")
    return times[order], pages[order], whats[order]


def _poisson_times(
    rng: np.random.Generator, rates: np.ndarray, horizon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw events of independent Poisson processes. Return their instants and page numbers, unsorted."""
    who = np.repeat(np.arange(len(rates)), rng.poisson(rates * horizon))
    return rng.uniform(0.0, horizon, len(who)), who


class Playback:
    """A scheduler that follows a precomputed sequence of pages."""

    def __init__(self, sequence: Iterator[int]) -> None:
        self._sequence = sequence

    def note_change(self, page: int, now: float) -> None:
        pass

    def claim_next(self, now: float) -> int:
        return next(self._sequence, -1)

    def record_outcome(self, page: int, now: float) -> None:
        pass


def check_policy(name: str) -> None:
    """Raise UsageError if there is no policy of that name."""
    if name in POLICIES:
        return
    try:
        kind_of(name)
    except KeyError:
        raise UsageError(f"--policies: {not_one_of(repr(name), POLICIES, ' or approx-J')}") from None


def _scheduler(name: str, believed: Pages, setting: ExperimentSetting, rng: np.random.Generator) -> Any:
    bandwidth = setting.bandwidth[0][1]
    if name in ("lds", "azar", "random"):
        return Playback(_sequence(name, believed, bandwidth, rng))
    if name == "ncis-d":
        return ExactGreedy(believed, "ncis", discard_window=DISCARD_TICKS * setting.tick)
    return ExactGreedy(believed, name)


def _sequence(name: str, pages: Pages, bandwidth: float, rng: np.random.Generator) -> Iterator[int]:
    mu, delta = pages.importance, pages.change_rate
    if name == "azar":
        return policies.low_discrepancy(policies.optimal_rates(mu, delta, bandwidth))
    rates = policies.deterministic_optimum(mu, delta, bandwidth).rates
    return policies.low_discrepancy(rates) if name == "lds" else _draws(rates, rng)


def _draws(rates: np.ndarray, rng: np.random.Generator) -> Iterator[int]:
    edges = np.cumsum(rates) / rates.sum()
    while True:
        yield from np.minimum(np.searchsorted(edges, rng.random(4096)), len(rates) - 1).tolist()


class SimulationResult(msgspec.Struct, frozen=True):
    """The result of a policy on an instance.

    `accuracy` is for the whole run, `settled` for the run without the warm-up, `by_bin` for each bin. `rates` are the
    crawl rates of the pages.
    """

    accuracy: float
    settled: float
    by_bin: np.ndarray
    rates: np.ndarray


def simulate(
    name: str,
    pages: Pages,
    events: Events,
    setting: ExperimentSetting,
    rng: np.random.Generator,
    believed: Pages | None = None,
) -> SimulationResult:
    """Run the policy `name` on an instance.

    The policy assumes the parameters `believed`. By default, these are the true parameters.
    """
    check_policy(name)
    if name in ("baseline", "optimum"):
        return _continuous(name, pages, setting)
    scheduler = _scheduler(name, believed or pages, setting, rng)
    doubt = np.exp(-pages.signal_weight)
    replay = Replay(pages.importance, pages.silent_rate, doubt, setting.horizon, setting.bins)
    replay.run(scheduler, setting.ticks(), events.times, events.pages, events.whats)
    by_bin = replay.accuracy()
    settled = float(by_bin[int(WARMUP * setting.bins) :].mean())
    return SimulationResult(float(by_bin.mean()), settled, by_bin, replay.rates())


def _continuous(name: str, pages: Pages, setting: ExperimentSetting) -> SimulationResult:
    """Return the continuous optimum. If the bandwidth changes, each span has its own optimum."""
    edges = np.linspace(0.0, setting.horizon, setting.bins, endpoint=False)
    begins = np.array([begin for begin, _ in setting.bandwidth])
    optima = []
    for _, rate in setting.bandwidth:
        if name == "optimum":
            optima.append(policies.optimum_with_signals(pages, rate))
        else:
            optima.append(policies.deterministic_optimum(pages.importance, pages.change_rate, rate))
    by_bin = np.array([optima[np.searchsorted(begins, edge, side="right") - 1].accuracy for edge in edges])
    settled = float(by_bin[int(WARMUP * setting.bins) :].mean())
    return SimulationResult(float(by_bin.mean()), settled, by_bin, optima[0].rates)


def experiment(
    names: list[str],
    draw_pages: Callable[[np.random.Generator], Pages],
    setting: ExperimentSetting,
    instances: int,
    seed: int,
    *,
    corrupt: float = 0.0,
    report: OnProgress = silent,
) -> list[dict[str, SimulationResult]]:
    """Run all policies on the same drawn instances. Return one dict of results per instance.

    Instance k uses a separate random generator, seeded with (seed, k). So further instances do not change the
    first ones.
    """
    for name in names:
        check_policy(name)
    found = []
    for k in range(instances):
        rng = np.random.default_rng([seed, k])
        pages = draw_pages(rng)
        events = draw_events(rng, pages, setting)
        believed = corrupted(rng, pages, corrupt)
        found.append(
            {
                name: simulate(name, pages, events, setting, np.random.default_rng([seed, k, 1]), believed)
                for name in names
            }
        )
        report((k + 1) / instances)
    return found


def mean_and_error(values: np.ndarray | list[float]) -> tuple[float, float]:
    """Return the mean and the standard error of the mean, which is 0 for a single value."""
    data = np.asarray(values, dtype=np.float64)
    error = float(data.std(ddof=1) / np.sqrt(len(data))) if len(data) > 1 else 0.0
    return float(data.mean()), error
