"""Draws figures 5, 7 and 10 of Busa-Fekete et al. (2025), which are about crawl rates. Each dot is a page."""

from functools import partial
from typing import Any

import numpy as np

from crawler.freshness.params import Pages
from crawler.lab.figures.drawing import LABELS, Drawing, Options, sheet
from crawler.lab.refresh.simulate import (
    ExperimentSetting,
    SimulationResult,
    draw_events,
    simulate,
    standard_pages,
)

INSTANCES = 10


def _runs(
    options: Options, sizes: tuple[int, ...], names: list[str], signals: str
) -> dict[int, list[tuple[Pages, dict[str, SimulationResult]]]]:
    """Return, by size and instance, the pages and the result of each policy on these pages."""
    setting = ExperimentSetting(horizon=100.0 if options.quick else 1000.0)
    found: dict[int, list[tuple[Pages, dict[str, SimulationResult]]]] = {}
    for size in sizes:
        found[size] = []
        for k in range(options.count(INSTANCES)):
            rng = np.random.default_rng([options.seed, k])
            pages = standard_pages(rng, size, signals)
            events = draw_events(rng, pages, setting)
            results = {name: simulate(name, pages, events, setting, rng) for name in [*names, "baseline"]}
            found[size].append((pages, results))
    return found


def _pooled(runs: list[tuple[Pages, dict[str, SimulationResult]]], name: str) -> tuple[np.ndarray, ...]:
    """For each page of each instance, return its crawl rate (baseline, policy), its recall and its change rate."""
    return (
        np.concatenate([results["baseline"].rates for _, results in runs]),
        np.concatenate([results[name].rates for _, results in runs]),
        np.concatenate([pages.recall for pages, _ in runs]),
        np.concatenate([pages.change_rate for pages, _ in runs]),
    )


def _scatter(
    axes: Any, base: np.ndarray, rates: np.ndarray, shade: np.ndarray | str, name: str, size: int
) -> Any:
    top = 1.05 * max(base.max(), rates.max())
    spots = axes.scatter(
        base, rates, c=shade, s=5, cmap="viridis", vmin=0.0, vmax=1.0, alpha=0.7, linewidths=0
    )
    axes.plot([0.0, top], [0.0, top], color="#D55E00", lw=0.8)
    axes.set(xlim=(0.0, 1.05 * base.max()), ylim=(0.0, top))
    axes.set_title(f"{LABELS[name]}, {size} pages", fontsize=9)
    return spots


def _grid(
    found: dict[int, list[tuple[Pages, dict[str, SimulationResult]]]],
    names: list[str],
    shades: list[tuple[str, int]],
    title: str,
) -> Any:
    """Draw a row of panels per size, with one panel for each policy and each shade.

    A shade is a pair (label, column of `_pooled`).
    """
    columns = len(names) * len(shades)
    figure, grid = sheet(3.1 * columns + 0.6, 3.1 * len(found) + 0.9, len(found), columns, squeeze=False)
    for row, (size, runs) in zip(grid, found.items(), strict=True):
        for k, (label, column) in enumerate(shades):
            mine = row[k * len(names) : (k + 1) * len(names)]
            for axes, name in zip(mine, names, strict=True):
                pooled = _pooled(runs, name)
                spots = _scatter(axes, pooled[0], pooled[1], pooled[column], name, size)
            figure.colorbar(spots, ax=mine[-1], label=label)
    for axes in grid[:, 0]:
        axes.set_ylabel("crawls per unit of time")
    for axes in grid[-1]:
        axes.set_xlabel("BASELINE rate")
    figure.suptitle(title)
    return figure


def _table(
    found: dict[int, list[tuple[Pages, dict[str, SimulationResult]]]], names: list[str]
) -> list[list[object]]:
    rows: list[list[object]] = []
    for size, runs in found.items():
        for k, (pages, results) in enumerate(runs):
            series = [results[name].rates.tolist() for name in ["baseline", *names]]
            for page in zip(pages.recall.tolist(), pages.change_rate.tolist(), *series, strict=True):
                rows.append([size, k, *page])
    return rows


def _drawing(
    options: Options,
    *,
    sizes: tuple[int, ...],
    names: list[str],
    signals: str,
    shades: list[tuple[str, int]],
    title: str,
    model: str,
) -> Drawing:
    found = _runs(options, sizes, names, signals)
    columns = ["pages", "instance", "recall", "change_rate", "baseline", *names]
    horizon = 100 if options.quick else 1000
    caption = (
        f"R = 100, T = {horizon}, {model}; all pages of {options.count(INSTANCES)} instances, each a dot; "
        "red: the rate of the continuous optimum without signals."
    )
    return Drawing(_grid(found, names, shades, title), columns, _table(found, names), caption)


# Figure 5: how GREEDY-CIS distributes the bandwidth.
perfect_signal_rates = partial(
    _drawing,
    sizes=(100, 300),
    names=["greedy", "cis"],
    signals="perfect",
    shades=[("recall lambda", 2), ("change rate Delta", 3)],
    title="Crawl rates with partial signals (NCIS, Figure 5)",
    model="lambda ~ Beta(.25,.25), nu = 0",
)

# Figure 7: GREEDY-CIS wastes crawls on pages with many false signals; GREEDY-NCIS does not.
noisy_signal_rates = partial(
    _drawing,
    sizes=(100, 1000),
    names=["greedy", "cis", "ncis"],
    signals="noisy",
    shades=[("recall lambda", 2)],
    title="Crawl rates with false signals (NCIS, Figure 7)",
    model="lambda ~ Beta(.25,.25), nu ~ U(.1,.6)",
)

# Figure 10: LDS crawls at the optimal rates; GREEDY follows staleness.
discrete_rates = partial(
    _drawing,
    sizes=(100, 500),
    names=["greedy", "lds"],
    signals="none",
    shades=[("change rate Delta", 3)],
    title="Crawl rates without signals (NCIS, Figure 10)",
    model="mu, Delta ~ U[0,1]",
)
