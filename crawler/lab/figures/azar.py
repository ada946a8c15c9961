"""Draws two figures of Azar et al. (2018): Figure 1 compares policies, Figure 2 shows the optimal rates of the pages."""

from collections.abc import Callable

import numpy as np

from crawler.lab.figures.drawing import Drawing, Options, rate_map, sheet
from crawler.lab.refresh import policies
from crawler.lab.refresh.simulate import mean_and_error

PAGES = 1000
ZIPF_RANGE = 10_000
BANDWIDTHS = (10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
RULES: dict[str, tuple[str, str, Callable[[np.ndarray, np.ndarray, float], np.ndarray]]] = {
    "algorithm 2": ("#009E73", "o", policies.optimal_rates),
    "change-directed": ("#0072B2", "s", lambda mu, delta, rate: policies.change_directed(delta, rate)),
    "proportional": ("#E69F00", "^", lambda mu, delta, rate: policies.proportional(mu, rate)),
    "uniform": ("#D55E00", "v", lambda mu, delta, rate: policies.uniform(len(mu), rate)),
}


def zipf(rng: np.random.Generator, size: int) -> np.ndarray:
    """Return random utilities from 1 to 10,000; the probability of k is proportional to k^-2."""
    numbers = np.arange(1, ZIPF_RANGE + 1)
    weights = numbers**-2.0
    return rng.choice(numbers, size, p=weights / weights.sum()).astype(np.float64)


def policies_compared(options: Options) -> Drawing:
    """Draw Figure 1: Algorithm 2 with an even schedule, compared with OPT and with simpler rules."""
    utilities = {
        "Zipf (exponent 2, range 10,000)": zipf,
        "uniform on [0, 1]": lambda rng, size: rng.random(size),
    }
    rows: list[list[object]] = []
    figure, grid = sheet(10.0, 4.8, 1, 2, sharey=True)
    for axes, (title, draw) in zip(grid, utilities.items(), strict=True):
        shares = _shares(options, draw)
        for k, (name, (colour, marker, _)) in enumerate(RULES.items()):
            points = [mean_and_error(shares[:, j, k]) for j in range(len(BANDWIDTHS))]
            means, errors = zip(*points, strict=True)
            axes.errorbar(BANDWIDTHS, means, errors, color=colour, marker=marker, ms=5, label=name, lw=1.3)
            low = shares[:, :, k].min(axis=0).tolist()
            rows += [[title, name, *row] for row in zip(BANDWIDTHS, means, errors, low, strict=True)]
        axes.axhline(1.0, color="k", lw=0.8, ls="--", label="OPT")
        axes.set_xscale("log")
        axes.set_xticks(BANDWIDTHS, [f"{rate:g}" for rate in BANDWIDTHS])
        axes.minorticks_off()
        axes.set(xlabel="bandwidth R (1,000 pages)", title=f"utilities {title}", ylim=(0.0, 1.05))
        axes.grid(alpha=0.3)
    grid[0].set_ylabel("average freshness as a share of OPT")
    grid[1].legend(fontsize=8, loc="lower right")
    figure.suptitle("Refresh rates of several policies (Azar et al., Figure 1)")
    mine = [row for row in rows if row[1] == "algorithm 2"]
    mean, error = min((float(row[3]), float(row[4])) for row in mine)  # type: ignore[arg-type]
    least = min(float(row[5]) for row in mine)  # type: ignore[arg-type]
    caption = (
        f"1,000 pages, change rates ~ U[0,1], {options.count(20)} instances; freshness of even intervals "
        f"(their Eq. 6), OPT by bisection. Algorithm 2 at its lowest point: {100 * mean:.2f} % of OPT on average "
        f"(s.e. {100 * error:.2f}); lowest single instance {100 * least:.2f} %. Error bars: one standard error."
    )
    columns = ["utilities", "policy", "bandwidth", "share_of_opt", "error", "least"]
    return Drawing(figure, columns, rows, caption)


def _shares(options: Options, draw: Callable[[np.random.Generator, int], np.ndarray]) -> np.ndarray:
    """Return the freshness as a share of that of OPT, in an array (instances, bandwidths, rules)."""
    out = np.empty((options.count(20), len(BANDWIDTHS), len(RULES)))
    for i in range(len(out)):
        rng = np.random.default_rng([options.seed, i])
        delta, mu = rng.random(PAGES), draw(rng, PAGES)
        for j, rate in enumerate(BANDWIDTHS):
            best = policies.even_freshness(mu, delta, policies.deterministic_optimum(mu, delta, rate).rates)
            for k, (_, _, rule) in enumerate(RULES.values()):
                out[i, j, k] = policies.even_freshness(mu, delta, rule(mu, delta, rate)) / best
    return out


def optimal_solution(options: Options) -> Drawing:
    """Draw Figure 2: the pages that Algorithm 1 crawls.

    It crawls only the pages above a line. It crawls pages less often if they are near the line or near the
    top of the figure.
    """
    rng = np.random.default_rng(options.seed)
    delta, mu = rng.random(PAGES), rng.random(PAGES)
    p = policies.optimal_probabilities(mu, delta)
    chosen = p > 0.0
    kept = 1.0 - delta[chosen]
    root = np.sqrt(mu[chosen] * delta[chosen]) / kept
    level = float((root.sum() / (1.0 + (delta[chosen] / kept).sum())) ** 2)
    figure, axes = sheet(7.2, 5.4)
    rate_map(axes, delta, mu, p, level)
    axes.set_title("The optimal solution p* of Problem 1 (Azar et al., Figure 2)")
    caption = (
        f"{PAGES} pages, mu and Delta ~ U[0,1]; one page per time slot. Crosses: never crawled "
        f"({int((~chosen).sum())} pages), exactly those below the line."
    )
    assert np.array_equal(chosen, mu / delta > level)
    rows = [list(row) for row in zip(delta.tolist(), mu.tolist(), p.tolist(), strict=True)]
    return Drawing(figure, ["change_rate", "utility", "probability"], rows, caption)
