"""Draws the two pictures of the league: scores by budget, and gains over the first policy."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from crawler.lab.figures import drawing
from crawler.lab.league.scores import Row, by_place

COLOURS = {
    "round-robin": "#000000",
    "believe": "#D55E00",
    "nutch": "#E69F00",
    "stormcrawler": "#A88F00",
    "heritrix": "#8C6D31",
    "cho": "#CC79A7",
    "oracle": "#56B4E9",
    "clairvoyant": "#999999",
    "greedy": "#0072B2",
    "ncis": "#009E73",
}
OTHERS = ("#7F3C8D", "#11A579", "#3969AC", "#80BA5A", "#E68310", "#CF1C90")
DASHED = {"oracle", "clairvoyant"}  # policies that have information that no crawler can have


def _colours(policies: Sequence[str]) -> dict[str, str]:
    spare = iter(OTHERS * (1 + len(policies) // len(OTHERS)))
    return {name: COLOURS.get(name) or next(spare) for name in policies}


def scores(
    rows: Sequence[Row], policies: Sequence[str], arms: Sequence[str], budgets: Sequence[float]
) -> Any:
    """For each arm, draw a panel with logarithmic axes: the share of time in which copies were stale, by budget."""
    found, colours = by_place(rows), _colours(policies)
    across = min(3, len(arms))
    down = -(-len(arms) // across)
    figure, axes = drawing.sheet(
        3.4 * across + 1.8, 2.8 * down + 1.0, down, across, squeeze=False, sharex=True, sharey=True
    )
    stale = [1.0 - row.score for row in rows]
    for place, arm in enumerate(arms):
        panel = axes[place // across][place % across]
        for policy in policies:
            line = [found[arm, policy, budget] for budget in budgets]
            panel.errorbar(
                budgets,
                [max(1.0 - row.score, 1e-4) for row in line],
                yerr=[min(np.nan_to_num(row.error), 0.9 * max(1.0 - row.score, 1e-4)) for row in line],
                color=colours[policy],
                label=policy,
                linestyle="--" if policy in DASHED else "-",
                linewidth=2.2 if policy == "ncis" else 1.2,
                marker="o",
                markersize=3,
                elinewidth=0.8,
            )
        panel.set(xscale="log", yscale="log", title=arm)
        panel.set_xticks(budgets, [f"{budget:g}x" for budget in budgets])
        panel.minorticks_off()
        ticks = [0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0]
        panel.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
        panel.set_ylim(max(0.001, 0.7 * min(stale)), min(1.0, 1.3 * max(stale)))
        panel.grid(alpha=0.3)
    for place in range(len(arms), across * down):
        axes[place // across][place % across].set_visible(False)
    figure.supylabel("share of time not current", fontsize=10)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    return figure


def gains(rows: Sequence[Row], policies: Sequence[str], arms: Sequence[str], budgets: Sequence[float]) -> Any:
    """Draw a panel per budget. For each arm, it shows paired differences from the first policy, with errors."""
    found, colours = by_place(rows), _colours(policies)
    others = [policy for policy in policies[1:] if policy not in DASHED] or list(policies)
    shown = [budget for budget in budgets if budget in (1.0, 3.0, 10.0)] or list(budgets)
    figure, axes = drawing.sheet(
        3.4 * len(shown) + 1.8,
        1.5 + max(1.5, 0.09 * len(arms) * (len(others) + 2)),
        1,
        len(shown),
        squeeze=False,
        sharey=True,
    )
    step = 0.8 / len(others)
    for panel, budget in zip(axes[0], shown, strict=True):
        for k, policy in enumerate(others):
            line = [found[arm, policy, budget] for arm in arms]
            panel.errorbar(
                [row.difference for row in line],
                np.arange(len(arms)) + (k - (len(others) - 1) / 2) * step,
                xerr=np.nan_to_num([row.difference_error for row in line]),
                color=colours[policy],
                label=policy,
                linestyle="",
                marker="o",
                markersize=4,
                elinewidth=1.0,
            )
        panel.axvline(0.0, color="#000000", linewidth=0.8)
        panel.set_xscale("symlog", linthresh=0.03, linscale=2.0)
        ticks = [-0.3, -0.1, -0.03, -0.01, 0.0, 0.01, 0.03, 0.1, 0.3]
        panel.set_xticks(ticks, [f"{tick:+g}" if tick else "0" for tick in ticks], rotation=60, fontsize=7)
        panel.minorticks_off()
        panel.set(title=f"{budget:g}x", xlabel=f"score minus {policies[0]}")
        panel.set_yticks(range(len(arms)), arms)
        panel.set_ylim(len(arms) - 0.4, -0.6)
        panel.grid(alpha=0.3)
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right upper", fontsize=8, frameon=False)
    return figure


PICTURES: dict[str, Callable[..., Any]] = {"league-scores": scores, "league-gains": gains}
