"""Estimator figures of Busa-Fekete et al. (2025), Appendix E: 13 (naive) and 14 (maximum likelihood).

Their grid: precision and recall in [0.2, 0.95], mean time between changes
~ U[2, 20], crawl rate between a quarter and four times the change rate, a
history of length 100,000. Here precision and recall are a grid, and length and
crawl rate (log-uniform) are drawn for each repetition; crawls are Poisson.
"""

from typing import Any

import numpy as np

from crawler.freshness.estimate import PER_DAY, RunningEstimate, fit, naive_quality
from crawler.lab.figures import Drawing, Options, sheet
from crawler.lab.simulate import mean_and_error

HORIZON = 100_000.0


def draw_history(
    rng: np.random.Generator, precision: float, recall: float, horizon: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Intervals between crawls of one page: length, signals, whether it changed."""
    delta = 1.0 / rng.uniform(2.0, 20.0)
    crawl_rate = delta * 4.0 ** rng.uniform(-1.0, 1.0)
    crawls = np.sort(rng.uniform(0.0, horizon, rng.poisson(crawl_rate * horizon)))
    silent = _counts(rng, (1.0 - recall) * delta, crawls)
    true = _counts(rng, recall * delta, crawls)
    false = _counts(rng, recall * delta * (1.0 - precision) / precision, crawls)
    return np.diff(crawls), true + false, silent + true > 0


def _counts(rng: np.random.Generator, rate: float, crawls: np.ndarray) -> np.ndarray:
    """Events of a Poisson process within each interval between crawls."""
    return rng.poisson(rate * np.diff(crawls))


def _errors(options: Options, naive: bool) -> tuple[np.ndarray, np.ndarray]:
    """The grid's edges (g,) and errors of (precision, recall): (g, g, repetitions, 2)."""
    values = np.linspace(0.2, 0.95, 4 if options.quick else 6)
    horizon = HORIZON / 20 if options.quick else HORIZON
    count = options.count(20)
    out = np.empty((len(values), len(values), count, 2))
    for i, precision in enumerate(values):
        for j, recall in enumerate(values):
            for k in range(count):
                rng = np.random.default_rng([options.seed, i, j, k])
                tau, n, z = draw_history(rng, float(precision), float(recall), horizon)
                if naive:
                    got = naive_quality(n, z)
                else:
                    estimate = fit(tau, n, z)
                    got = (estimate.precision, estimate.recall)
                out[i, j, k] = got[0] - precision, got[1] - recall
            options.report((i + (j + 1) / len(values)) / len(values))
    return values, out


def _maps(values: np.ndarray, errors: np.ndarray, title: str) -> Any:
    """The mean error of precision and of recall over the grid, as two maps with numbers."""
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
    """Figure 13: counting by interval overestimates both."""
    return _drawing(options, True, "Bias of the naive estimates (NCIS, Figure 13)")


def likelihood_bias(options: Options) -> Drawing:
    """Figure 14: maximum likelihood hardly errs."""
    return _drawing(options, False, "Bias of the maximum-likelihood estimates (NCIS, Figure 14)")


def running_against_batch(seed: int, pages: int, crawls: int) -> np.ndarray:
    """How far the constant-memory estimate is from the batch: (pages, 4).

    Columns: difference of silent_rate and signal_weight in standard errors of
    the batch, of change_rate relative, of precision absolute.
    """
    out = np.empty((pages, 4))
    for k in range(pages):
        rng = np.random.default_rng([seed, k])
        precision, recall = rng.uniform(0.2, 0.95, 2)
        history = [column[:crawls] for column in draw_history(rng, precision, recall, HORIZON)]
        running = RunningEstimate(PER_DAY)
        for row in zip(*(column.tolist() for column in history), strict=True):
            running.observe(*row)
        got, batch = running.estimate(), fit(*history, prior=PER_DAY)
        out[k] = (
            (got.silent_rate - batch.silent_rate) / batch.silent_rate_error,
            (got.signal_weight - batch.signal_weight) / batch.signal_weight_error,
            got.change_rate / batch.change_rate - 1.0,
            got.precision - batch.precision,
        )
    return out
