"""Draws the figures of Busa-Fekete et al. (2025) about accuracy: 3, 4, 6, 8, 9, 11, 12."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import msgspec
import numpy as np

from crawler.errors import UsageError
from crawler.freshness.params import PageParameters, Pages
from crawler.lab.figures.drawing import COLOURS, LABELS, MARKERS, Drawing, Options, grouped_bars, sheet
from crawler.lab.progress_line import part
from crawler.lab.refresh import pages_file
from crawler.lab.refresh.crawl_value import crawl_values
from crawler.lab.refresh.simulate import (
    ExperimentSetting,
    SimulationResult,
    corrupted,
    draw_events,
    experiment,
    mean_and_error,
    real_world_pages,
    simulate,
    standard_pages,
)

SIZES = (100, 200, 300, 500, 750, 1000)


def _horizon(options: Options) -> float:
    return 100.0 if options.quick else 1000.0


def _sweep(
    options: Options, sizes: tuple[int, ...], names: list[str], signals: str, usual: int, **setting: Any
) -> dict[int, list[dict[str, SimulationResult]]]:
    """Run all policies at all sizes on the same instances.

    For 5,000 pages or more, only a fifth of the instances is run.
    """
    found = {}
    counts = {size: options.count(usual if size < 5000 else max(2, usual // 5)) for size in sizes}
    # roughly proportional to the time that the runs take
    work = np.cumsum([0.0] + [counts[size] * (500.0 + size) for size in sizes])
    shares = (work / work[-1]).tolist()

    def drawer(size: int) -> Callable[[np.random.Generator], Pages]:
        return lambda rng: standard_pages(rng, size, signals)

    for k, size in enumerate(sizes):
        found[size] = experiment(
            names,
            drawer(size),
            ExperimentSetting(horizon=_horizon(options), **setting),
            counts[size],
            options.seed,
            report=part(options.report, shares[k], shares[k + 1]),
        )
    return found


def _accuracy_table(
    found: dict[int, list[dict[str, SimulationResult]]], base: str
) -> tuple[list[str], list[list[object]]]:
    """Return one row per size and policy: accuracy after the warm-up, and its paired difference from `base`."""
    columns = [
        "pages",
        "policy",
        "instances",
        "accuracy",
        "error",
        "whole",
        f"minus_{base}",
        "difference_error",
    ]
    rows: list[list[object]] = []
    for size, results in found.items():
        for name in results[0]:
            settled = [result[name].settled for result in results]
            paired = [result[name].settled - result[base].settled for result in results]
            whole, _ = mean_and_error([result[name].accuracy for result in results])
            rows.append([size, name, len(results), *mean_and_error(settled), whole, *mean_and_error(paired)])
    return columns, rows


def _two_panels(
    rows: list[list[object]],
    title: str,
    ylabel: str,
    labels: Mapping[str, str] = LABELS,
    *,
    left_only: str = "",
) -> Any:
    """Draw accuracy (left) and its paired difference from a base (right) over the number of pages, with error bars.

    The policy `left_only` is not drawn on the right.
    """
    figure, (left, right) = sheet(10.0, 4.6, 1, 2)
    sizes = sorted({int(row[0]) for row in rows})  # type: ignore[call-overload]
    for name in dict.fromkeys(str(row[1]) for row in rows):
        mine = [row for row in rows if row[1] == name]
        style = {"color": COLOURS[name], "label": labels[name], "lw": 1.4, "ms": 5, "marker": MARKERS[name]}
        style["ls"] = "--" if name in ("baseline", "optimum", "prompt") else "-"
        left.errorbar([row[0] for row in mine], [row[3] for row in mine], [row[4] for row in mine], **style)
        if name != left_only:
            right.errorbar(
                [row[0] for row in mine], [row[6] for row in mine], [row[7] for row in mine], **style
            )
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=45)
        axes.minorticks_off()
        axes.set_xlabel("number of pages m (bandwidth 100)")
        axes.grid(alpha=0.3)
    left.set_ylabel("accuracy: share of requests served fresh")
    right.set_ylabel(ylabel)
    # The upper right corner has room for the legend, because accuracy falls with the number of pages.
    left.legend(fontsize=8, loc="upper right")
    figure.suptitle(title)
    return figure


_ERRORS = "Error bars: one standard error over instances (paired on the right)."


def _instances(found: dict[int, list[dict[str, SimulationResult]]]) -> str:
    counts = {size: len(results) for size, results in found.items()}
    few = ", ".join(
        f"{count} at m = {size}" for size, count in counts.items() if count != max(counts.values())
    )
    return f"{max(counts.values())} instances{f' ({few})' if few else ''}"


def _accuracy_figure(
    options: Options, *, sizes: tuple[int, ...], names: list[str], signals: str, title: str, model: str
) -> Drawing:
    found = _sweep(options, sizes, names, signals, 60)
    columns, rows = _accuracy_table(found, "baseline")
    caption = (
        f"R = 100, T = {_horizon(options):g} without its first fifth, {model}; {_instances(found)}. "
        f"Exact expected accuracy between events. {_ERRORS}"
    )
    return Drawing(_two_panels(rows, title, "accuracy minus BASELINE, paired"), columns, rows, caption)


# Figure 3: GREEDY and LDS reach the continuous optimum.
without_signals = partial(
    _accuracy_figure,
    sizes=SIZES,
    names=["baseline", "lds", "greedy"],
    signals="none",
    title="Discrete policies without signals (NCIS, Figure 3)",
    model="mu, Delta ~ U[0,1], no signals",
)

# Figure 4: the gain from signals if none of them is false.
perfect_signals = partial(
    _accuracy_figure,
    sizes=SIZES,
    names=["baseline", "optimum", "greedy", "cis"],
    signals="perfect",
    title="Partial signals without false ones (NCIS, Figure 4)",
    model="mu, Delta ~ U[0,1], lambda ~ Beta(.25,.25), nu = 0",
)

# Figure 6: false signals. If bandwidth is scarce, believing all signals is worse than ignoring them.
noisy_signals = partial(
    _accuracy_figure,
    sizes=(100, 200, 500, 750, 1000, 10000),
    names=["baseline", "optimum", "greedy", "cis", "ncis", "approx-1", "approx-2"],
    signals="noisy",
    title="Signals including false ones (NCIS, Figure 6)",
    model="mu, Delta ~ U[0,1], lambda ~ Beta(.25,.25), nu ~ U(.1,.6)",
)


def delayed_signals(options: Options) -> Drawing:
    """Draw Figure 11: delayed signals, and a remedy, which is to ignore signals that arrive right after a crawl."""
    sizes = (100, 200, 500, 750, 1000)
    first = msgspec.structs.replace(options, report=part(options.report, 0.0, 0.67))
    second = msgspec.structs.replace(options, report=part(options.report, 0.67, 1.0))
    late = _sweep(first, sizes, ["baseline", "ncis", "ncis-d"], "noisy", 60, delay=6.0)
    prompt = _sweep(second, sizes, ["ncis"], "noisy", 60)
    # two bounds on the same instances: the baseline without signals, and NCIS without delay
    for size in sizes:
        for here, there in zip(late[size], prompt[size], strict=True):
            here["prompt"] = there["ncis"]
    columns, rows = _accuracy_table(late, "prompt")
    caption = (
        f"R = 100, T = {_horizon(options):g} without its first fifth, pages as in Figure 6; signals arrive "
        f"Poisson(6) ticks late (read as ticks of 1/R), NCIS-D drops those within 5 ticks after the crawl; "
        f"{_instances(late)}. {_ERRORS} The undelayed runs have the same pages and signals."
    )
    labels = LABELS | {"ncis": "GREEDY-NCIS, delayed", "ncis-d": "GREEDY-NCIS-D, delayed"}
    figure = _two_panels(
        rows,
        "Delayed signals (NCIS, Figure 11)",
        "accuracy minus NCIS without delay, paired",
        labels,
        left_only="baseline",
    )
    return Drawing(figure, columns, rows, caption)


# -- figure 8


def corrupted_signals(options: Options) -> Drawing:
    """Draw Figure 8: policies with wrong values of precision and recall."""
    size, bandwidth, horizon = (2000, 100.0, 40.0) if options.quick else (100_000, 5000.0, 200.0)
    given = pages_file.read(options.pages) if options.pages else None
    setting = ExperimentSetting(bandwidth=((0.0, bandwidth),), horizon=horizon)
    rows: list[list[object]] = []
    names, shares = ["greedy", "cis+", "ncis"], (0.0, 0.1, 0.2)
    found: dict[tuple[str, float], list[float]] = {(name, share): [] for name in names for share in shares}
    for k in range(options.count(5)):
        rng = np.random.default_rng([options.seed, k])
        pages = _given_pages(given, size, rng) if given else real_world_pages(rng, size)
        events = draw_events(rng, pages, setting)
        for share in shares:
            believed = corrupted(np.random.default_rng([options.seed, k, 2]), pages, share)
            for name in names:
                if name == "greedy" and share > 0.0:  # GREEDY ignores precision and recall
                    found[name, share].append(found[name, 0.0][k])
                    continue
                found[name, share].append(simulate(name, pages, events, setting, rng, believed).settled)
                options.report(sum(map(len, found.values())) / (len(found) * options.count(5)))
    for (name, share), values in found.items():
        paired = np.array(values) - np.array(found["greedy", share])
        rows.append([name, share, len(values), *mean_and_error(values), *mean_and_error(paired)])
    columns = ["policy", "corruption", "instances", "accuracy", "error", "minus_greedy", "difference_error"]
    where = f"pages of {options.pages.name}" if options.pages else _STAND_IN
    caption = (
        f"{size:,} pages, {bandwidth:g} crawls per day, {horizon:g} days without the first fifth, "
        f"{options.count(5)} instances. {where} Corruption p: (1-p) value + p U(0,1), precision and recall. "
        "Error bars: one standard error over instances."
    )
    return Drawing(_bars(rows, names, shares), columns, rows, caption)


_STAND_IN = (
    "ASSUMED, instead of the data of Kolobov et al.: Delta log-normal, median 0.1 per day, sigma 1.3, within "
    "[0.0005, 7]; precision ~ Beta(1.3, 2.83), recall ~ Beta(1.3, 3.75); 5 % labelled pages from the upper "
    "5 % of both, with 26.4 % of the weight (exponential importance)."
)


def _given_pages(file: pages_file.PagesFile, size: int, rng: np.random.Generator) -> Pages:
    """Return `size` of the user's pages, with signals drawn as for the synthetic pages."""
    if len(file.pages) < size:
        raise UsageError(f"the pages file holds {len(file.pages)} pages; the figure needs {size}")
    chosen = rng.choice(len(file.pages), size, replace=False)
    stand_in = real_world_pages(rng, size, labelled=file.labelled[chosen])
    pages = file.pages.select(chosen)
    return Pages.from_quality(pages.importance, pages.change_rate, stand_in.precision, stand_in.recall)


def _bars(rows: list[list[object]], names: list[str], shares: tuple[float, ...]) -> Any:
    figure, axes = sheet(8.0, 5.2)
    series = {
        name: [(float(row[3]), float(row[4])) for row in rows if row[0] == name]  # type: ignore[arg-type]
        for name in names
    }
    grouped_bars(axes, [f"p = {share:g}" for share in shares], series, LABELS.__getitem__)
    heights = [height for values in series.values() for height, _ in values]
    spread = max(heights) - min(heights)
    axes.set_ylim(min(heights) - 0.35 * spread, max(heights) + 0.45 * spread)
    axes.set_ylabel("accuracy (axis does not start at 0)")
    axes.set_xlabel("corruption of the precision and recall that policies use")
    axes.legend(fontsize=8, ncols=3, loc="upper center")
    axes.set_title("Corrupted signal quality (NCIS, Figure 8)")
    return figure


# -- figures 9 and 12


def value_function(options: Options) -> Drawing:
    """Draw Figure 9: V, its truncated sums, and their asymptotes."""
    page = PageParameters(1.0, 0.5, 0.3, 0.4)
    pages = Pages.of([page] * 601)
    elapsed = np.linspace(0.0, 30.0, 601)
    names = ["ncis", "approx-1", "approx-2", "approx-3", "greedy"]
    curves = {name: crawl_values(pages, elapsed, by=name) for name in names}
    figure, axes = sheet(7.5, 5.0)
    colours = {"approx-1": "#E69F00", "approx-2": "#CC79A7", "approx-3": "#56B4E9"}
    for name, curve in curves.items():
        dashes = {"ncis": "-", "greedy": ":"}.get(name, "--")
        label = {"ncis": "V, all terms", "greedy": "GREEDY (no signals)", "approx-1": "first term"}.get(
            name, f"first {name[7:]} terms"
        )
        axes.plot(elapsed, curve, ls=dashes, color=colours.get(name, COLOURS.get(name)), label=label)
    axes.axhline(page.ceiling, color="#D55E00", lw=1, label="mu/Delta, asymptote of V")
    for step in range(1, int(30.0 / page.signal_time) + 1):
        axes.axvline(step * page.signal_time, color="#BBBBBB", lw=0.6, zorder=0)
    axes.set(
        xlabel="effective elapsed time iota (grey: multiples of beta)", ylabel="crawl value", xlim=(0, 30)
    )
    axes.set_ylim(0.0, None)
    axes.legend(fontsize=8, loc="lower right")
    axes.set_title("The crawl value and its approximations (NCIS, Figure 9)")
    caption = (
        f"One page: mu = 1, Delta = {page.change_rate}, lambda = {page.recall}, nu = {page.false_rate}, "
        f"beta = {page.signal_time:.3f}. Truncated sums tend to (mu/Delta)(1 - (nu/(Delta+nu))^J), not to mu/Delta."
    )
    rows = [
        list(row) for row in zip(elapsed.tolist(), *(curves[name].tolist() for name in names), strict=True)
    ]
    return Drawing(figure, ["effective_elapsed", *names], rows, caption)


def changing_bandwidth(options: Options) -> Drawing:
    """Draw Figure 12: GREEDY adapts to a change of bandwidth."""
    size, count, bins = 1000, options.count(20), 200
    plans = {
        "100, then 150 from t = 133, 100 from 266": ((0.0, 100.0), (133.0, 150.0), (266.0, 100.0)),
        "always 100": ((0.0, 100.0),),
        "always 150": ((0.0, 150.0),),
    }
    curves, limits = {}, {}
    for label, plan in plans.items():
        setting = ExperimentSetting(bandwidth=plan, horizon=400.0, bins=bins)
        found = experiment(
            ["greedy", "baseline"],
            lambda rng: standard_pages(rng, size, "none"),
            setting,
            count,
            options.seed,
        )
        curves[label] = np.mean([result["greedy"].by_bin for result in found], axis=0)
        limits[label] = float(np.mean([result["baseline"].by_bin[0] for result in found]))
    times = (np.arange(bins) + 0.5) * (400.0 / bins)
    figure, axes = sheet(8.5, 4.6)
    for (label, curve), colour in zip(curves.items(), ("#D55E00", "#009E73", "#0072B2"), strict=True):
        axes.plot(times, curve, color=colour, label=f"GREEDY, bandwidth {label}", lw=1.4)
    for label in ("always 100", "always 150"):
        axes.axhline(limits[label], color="#999999", ls="--", lw=0.8)
        axes.text(
            398, limits[label], f"BASELINE, {label[7:]}", fontsize=7, ha="right", va="bottom", color="#555555"
        )
    settled = [curve[10:] for curve in curves.values()]
    axes.set_ylim(np.min(settled) - 0.02, np.max(settled) + 0.06)
    axes.set(xlabel="time", ylabel="accuracy", xlim=(0, 400))
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    axes.set_title("Accuracy while the bandwidth changes (NCIS, Figure 12)")
    caption = (
        f"m = {size}, mu, Delta ~ U[0,1], no signals, {count} instances, mean expected accuracy in spans of "
        f"{400 / bins:g}. All pages are fresh at t = 0 (the curves start at 1, above the frame)."
    )
    rows = [
        list(row) for row in zip(times.tolist(), *(curve.tolist() for curve in curves.values()), strict=True)
    ]
    return Drawing(figure, ["time", *curves], rows, caption)
