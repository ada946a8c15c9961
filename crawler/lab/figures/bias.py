"""Draws the figures of Busa-Fekete et al. (2025), Appendix E, about estimators.

Figure 13 is about the naive estimator, Figure 14 about maximum likelihood.

The paper's grid has precision and recall in [0.2, 0.95], a mean time between changes that is uniform in [2,
20], a crawl rate between a quarter and four times the change rate, and histories of length 100,000. In the
figures of this module, only precision and recall are on the axes. The mean time between changes and the crawl
rate (log-uniform) are drawn for each repetition, and crawls are a Poisson process.
"""

from typing import Any

import numpy as np

from crawler.lab.figures.drawing import Drawing, Options, sheet
from crawler.lab.refresh.estimate import fit, naive_quality
from crawler.lab.refresh.simulate import mean_and_error

HORIZON = 100_000.0


def draw_history(
    rng: np.random.Generator, precision: float, recall: float, horizon: float
) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
    """Draw the history of a page at random.

    Return the change rate, and three values for each interval between crawls: its length, its number of signals,
    and whether the page changed.
    """
    delta = 1.0 / rng.uniform(2.0, 20.0)
    crawl_rate = delta * 4.0 ** rng.uniform(-1.0, 1.0)
    crawls = np.sort(rng.uniform(0.0, horizon, rng.poisson(crawl_rate * horizon)))
    rates = (1.0 - recall) * delta, recall * delta, recall * delta * (1.0 - precision) / precision
    silent, true, false = (rng.poisson(rate * np.diff(crawls)) for rate in rates)
    return delta, np.diff(crawls), true + false, silent + true > 0


def _errors(options: Options, naive: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the values along an axis of the grid, (g,), and the errors at each point of the grid.

    The errors are those of precision and recall, (g, g, repetitions, 2).
    """
    values = np.linspace(0.2, 0.95, 4 if options.quick else 6)
    horizon = HORIZON / 20 if options.quick else HORIZON
    count = options.count(20)
    out = np.empty((len(values), len(values), count, 2))
    for i, precision in enumerate(values):
        for j, recall in enumerate(values):
            for k in range(count):
                rng = np.random.default_rng([options.seed, i, j, k])
                _, tau, n, z = draw_history(rng, float(precision), float(recall), horizon)
                if naive:
                    got = naive_quality(n, z)
                else:
                    estimate = fit(tau, n, z)
                    got = (estimate.precision, estimate.recall)
                out[i, j, k] = got[0] - precision, got[1] - recall
            options.report((i + (j + 1) / len(values)) / len(values))
    return values, out


def _maps(values: np.ndarray, errors: np.ndarray, title: str) -> Any:
    """Draw the mean errors of precision and recall over the grid, as two maps with numbers."""
    figure, grid = sheet(10.0, 4.9, 1, 2)
    reach = float(np.abs(errors.mean(axis=2)).max())
    digits = 2 if reach > 0.02 else 4
    for axes, which, name in zip(grid, (0, 1), ("precision", "recall"), strict=True):
        bias = errors[..., which].mean(axis=2)
        image = axes.imshow(bias.T, origin="lower", cmap="RdBu_r", vmin=-reach, vmax=reach)
        for (i, j), value in np.ndenumerate(bias):
            dark = abs(value) > 0.6 * reach
            axes.text(
                i, j, f"{value:+.{digits}f}", ha="center", va="center", fontsize=7, color="w" if dark else "k"
            )
        labels = [f"{value:.2f}" for value in values]
        axes.set_xticks(range(len(values)), labels)
        axes.set_yticks(range(len(values)), labels)
        axes.set(xlabel="true precision", ylabel="true recall")
        axes.set_title(f"mean error of the {name}", fontsize=10)
        figure.colorbar(image, ax=axes)
    figure.suptitle(title)
    return figure


def _drawing(options: Options, naive: bool, title: str) -> Drawing:
    values, errors = _errors(options, naive)
    columns = ["precision", "recall", "repetitions", "precision_bias", "error", "recall_bias", "error"]
    rows: list[list[object]] = []
    for i, precision in enumerate(values.tolist()):
        for j, recall in enumerate(values.tolist()):
            cell = [mean_and_error(errors[i, j, :, which]) for which in (0, 1)]
            rows.append([precision, recall, errors.shape[2], *cell[0], *cell[1]])
    means = [mean_and_error(errors[..., which].ravel()) for which in (0, 1)]
    sizes = [float(np.abs(errors[..., which]).mean()) for which in (0, 1)]
    caption = (
        f"Change interval ~ U[2, 20], crawl rate 1/4 to 4 times the change rate, history "
        f"{HORIZON / 20 if options.quick else HORIZON:g}, {errors.shape[2]} repetitions a cell. Over all: "
        "mean "
        f"error of precision {means[0][0]:+.5f} (s.e. {means[0][1]:.5f}), of recall {means[1][0]:+.5f} "
        f"(s.e. {means[1][1]:.5f}); mean absolute error {sizes[0]:.4f} and {sizes[1]:.4f}."
    )
    return Drawing(_maps(values, errors, title), columns, rows, caption)


def naive_bias(options: Options) -> Drawing:
    """Draw Figure 13: the naive estimate, which counts intervals, overestimates both precision and recall."""
    return _drawing(options, True, "Bias of the naive estimates (NCIS, Figure 13)")


def likelihood_bias(options: Options) -> Drawing:
    """Draw Figure 14: the bias of maximum likelihood is small."""
    return _drawing(options, False, "Bias of the maximum-likelihood estimates (NCIS, Figure 14)")
