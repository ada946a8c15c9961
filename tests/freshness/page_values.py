"""The values of a single page, as the compiled kernel computes them."""

from crawler.freshness.params import PageParameters
from crawler.lab.refresh.crawl_value import parameters_of


def crawl_value(page: PageParameters, elapsed: float, signals: float = 0, *, by: str = "ncis") -> float:
    """Return the value of crawling `page` now, `elapsed` after its last crawl, with `signals` received since then."""
    return parameters_of(page, by=by).value(elapsed, signals)


def threshold(page: PageParameters, level: float, *, by: str = "ncis") -> float:
    """Return the effective elapsed time at which the crawl value reaches `level`; infinity if it never does."""
    return parameters_of(page, by=by).threshold(level, 0.0, 1e-15)


def wait(page: PageParameters, level: float, signals: float = 0, *, by: str = "ncis") -> float:
    """Return the time after the last crawl at which the value reaches `level`, with this number of `signals`."""
    return parameters_of(page, by=by).wait(level, signals, 0.0, 1e-15)


def expected_interval(page: PageParameters, at: float) -> float:
    """Return psi, the mean time between crawls of a page that is crawled at the threshold `at`."""
    return parameters_of(page).interval(at)


def expected_fresh_time(page: PageParameters, at: float) -> float:
    """Return w, the mean time for which a copy stays fresh between crawls at the threshold `at`."""
    return parameters_of(page).fresh_time(at)


def value_slope(page: PageParameters, at: float) -> float:
    """Return V' at the threshold `at`, for silent_rate > 0."""
    return parameters_of(page).slope(at, 0.0)
