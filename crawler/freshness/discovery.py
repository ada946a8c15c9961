# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Computes the value of fetching a hub again, from the new pages that the fetch would show.

`freshness/README.md`, "Discovery", defines the additional value D of a hub. D follows from a general rule: a
task whose neglect costs c(tau) per day is worth tau c(tau) minus the integral of c from 0 to tau. GREEDY
follows from the same rule. For a hub, c(tau) is v theta tau, where v is the value of a new page. In D(tau),
tau is plain time. The neighbourhood's clock A is not used for tau, because this clock measures the changes of
known pages.

V alone would reach the level at A = V^-1(level), and D alone at tau = sqrt(2 level / (v theta)). The hub is
due no later than either of these two times. While tau is small, V and D are nearly proportional to the square
of tau. So Newton's method is applied to the square root of V + D, within a bracket (`hub_wait`).

*theta* is learned from credits for new pages. For each hub, two numbers are kept in single precision, as of the
hub's last crawl: the pages found, and the time watched. Both decay with a half-life of 90 days:

    theta_c = (first_c + 1/2) / (watched_c + 365 d)
    theta_s = (first_s + 60 d theta_c) / (watched_s + 60 d)
    theta_d = (first_d + 30 d theta_s) / (watched_d + 30 d)
    theta_h = (found_h + 15 d theta_d) / (watched_h + 15 d)

Every page may be a hub, but very few are. So the sums of a directory, a site and the crawl count each page
only until a new page is first found through it: for such a page, they contain one find, and the time for
which the page was watched before this find. Therefore, theta_d is the rate at which a page becomes a hub. A
mean over all pages would credit each page of a directory with a share of what the directory's listing finds.
Half of the fetches for new pages would then go to pages that show none. On the news site of the league (W =
1), with hubs that show nothing at the start, the mean over all pages led to a score of 0.754, and it took 5.7
days until a page was copied. With sums that end at the first find of each page, the score was 0.775, and it took
4.1 days until a page was copied.
For a page that never showed a new page, no numbers are stored: `found` is 0, and `watched` equals T, the time
for which the page was watched for changes. When a page shows its first new page, its `watched` starts from
its T at that time.

*Lists.* The prior rate of a list is proportional to n, the number of URLs that the list's first copy was the first
to show. On the histories of the league, a list of n pages shows about 0.0003 n new pages per day, from n = 2 to
n = 60:

    beta_c = (found_c + 1/2) / (sum of n watched_c + 1500 d)
    beta_s = (found_s + 24000 d beta_c) / (sum of n watched_s + 24000 d)
    a = 0.02 n, but at least 0.3 and at most 1.2
    theta_h = (found_h + a) / (watched_h + a / (n beta_s))

The sums are over all lists of the crawl or site. The prior of theta_h is a Gamma distribution with the mean
n beta_s and the shape parameter a, which is the number of new pages that the prior counts as. The new pages of a
site are found on few of its short lists, so the prior of a short list has little weight. Long lists differ less
from the mean. If the prior of every list had a weight of 15 days, the new pages that a site's ten news pages
showed would also raise the estimates of its sixty quiet listings, which would then get a third of all fetches of
hubs. `lab/league/README.md` has the results of other weights.

Sources: Dasgupta, Ghosh, Kumar, Olston, Pandey, Tomkins, *The discoverability of the Web* (WWW
2007); Lefortier, Ostroumova, Samosvat, Serdyukov, *Timely crawling of high-quality ephemeral new content*
(CIKM 2013); Avrachenkov and Borkar, *Whittle index policy for crawling ephemeral content* (2016).
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.neighbourhood import clock_of, elapsed_of
from cython.cimports.crawler.freshness.value_kernel import Parameters
from cython.cimports.libc.math import exp, expm1, sqrt

from crawler.freshness.columns import Column, rows_of

COMPILED = cython.compiled

_inf = cython.declare(cython.double, float("inf"))
# maximum number of steps of a search
_STEPS_MAX = cython.declare(cython.int, 40)
_CLOSE = cython.declare(cython.double, 1e-12)

_FOUND = cython.declare(cython.Py_ssize_t, 0)  # these constants are the numbers of columns of the sums
_WATCHED = cython.declare(cython.Py_ssize_t, 1)
_AT = cython.declare(cython.Py_ssize_t, 2)

# The priors count like observations that were made in addition to the real ones. `_CRAWL_FOUND` is a number
# of new pages. The other constants are numbers of days.
_CRAWL_FOUND = cython.declare(cython.double, 0.5)
_CRAWL_DAYS = cython.declare(cython.double, 365.0)
_SITE_DAYS = cython.declare(cython.double, 60.0)
_DIRECTORY_DAYS = cython.declare(cython.double, 30.0)
_HUB_DAYS = cython.declare(cython.double, 15.0)
# The priors of lists also count like additional observations. The shape parameters and `_LINK_FOUND` are numbers
# of new pages. The other two constants are numbers of days, each of which counts once for each link of the list:
# if a list of 10 links was watched for 3 days, they count as 30 days.
_SHAPE_PER_LINK = cython.declare(cython.double, 0.02)
_SHAPE_LEAST = cython.declare(cython.double, 0.3)
_SHAPE_MOST = cython.declare(cython.double, 1.2)
_LINK_FOUND = cython.declare(cython.double, 0.5)
_LINK_DAYS = cython.declare(cython.double, 1500.0)
_SITE_LINK_DAYS = cython.declare(cython.double, 24_000.0)
_MEAN_LIFE_DAYS = cython.declare(cython.double, 129.84255368000671)  # a half-life of 90 days, divided by ln 2


def hub_value(pace: cython.double, elapsed: cython.double) -> cython.double:
    """Return D, the value of the new pages that a hub would show. `pace` is v theta, in value per unit of time."""
    return 0.5 * pace * elapsed * elapsed


def found_by(pace: cython.double, level: cython.double) -> cython.double:
    """Return the elapsed time at which D alone reaches `level`: sqrt(2 level / pace), or infinity if `pace` is 0."""
    if level <= 0.0:
        return 0.0
    return sqrt(2.0 * level / pace) if pace > 0.0 else _inf


def hub_wait(
    page: Parameters,
    level: cython.double,
    signals: cython.double,
    pace: cython.double,
    excess: cython.double,
    scale: cython.double,
    tolerance: cython.double,
) -> cython.double:
    """Return the time after a page's last crawl at which V(A) + D reaches `level`; infinity if it never does.

    The search computes V(A) + D at most 40 times.

    Args:
        page: parameters of its V, with `signals` since the last crawl, as for `Parameters.wait`.
        pace: v theta, the value of new pages per unit of time; 0: not a hub.
        excess, scale: parameters of the neighbourhood's clock; with excess 0 the clock is the elapsed time.
        tolerance: relative.
    """
    alone: cython.double = elapsed_of(page.wait(level, signals, 0.0, tolerance), excess, scale)
    if not pace > 0.0 or alone <= 0.0:
        return alone
    low: cython.double = 0.0
    high: cython.double = min(alone, found_by(pace, level))
    root: cython.double = sqrt(level)
    # the search begins where the solution would be if V and D were proportional to the square of tau
    tau: cython.double = high
    if alone < _inf:
        tau = 1.0 / sqrt(1.0 / (alone * alone) + 0.5 * pace / level)
    for _ in range(_STEPS_MAX):
        clock: cython.double = clock_of(tau, excess, scale)
        reached: cython.double = page.value(clock, signals) + 0.5 * pace * tau * tau
        if reached < level:
            low = tau
        else:
            high = tau
        if abs(reached - level) <= _CLOSE * level:
            break
        slope: cython.double = page.slope(clock, signals) * _speed(tau, clock, excess, scale) + pace * tau
        follow: cython.double = -1.0
        if reached > 0.0 and slope > 0.0:
            follow = tau + (root - sqrt(reached)) * 2.0 * sqrt(reached) / slope
        newton: cython.bint = low < follow < high
        if not newton:
            follow = 0.5 * (low + high)
        moved: cython.double = abs(follow - tau)
        tau = follow
        # After a Newton step, the error is about the square of the step. After a bisection, the error is at
        # most the length of the bracket.
        if moved * moved <= 0.1 * tolerance * tau * tau if newton else high - low <= tolerance * tau:
            break
    return tau


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _speed(
    tau: cython.double, clock: cython.double, excess: cython.double, scale: cython.double
) -> cython.double:
    """Return an approximation of dA/dtau.

    If the approximation makes a Newton step too long, the bracket limits the step.
    """
    if excess == 0.0 or not tau > 0.0:
        return 1.0
    ahead: cython.double = 1e-4 * tau
    return (clock_of(tau + ahead, excess, scale) - clock) / ahead


def faded(count: cython.double, elapsed: cython.double, unit: cython.double) -> cython.double:
    """Return a count decayed by its age, with a half-life of 90 days; `unit` is the length of a day."""
    return count * exp(-max(elapsed, 0.0) / (_MEAN_LIFE_DAYS * unit))


def watched_for(elapsed: cython.double, unit: cython.double) -> cython.double:
    """Return the weighted length of the past time `elapsed`: the weight of a moment halves every 90 days.

    The result is at most 130 days.
    """
    life: cython.double = _MEAN_LIFE_DAYS * unit
    return -life * expm1(-max(elapsed, 0.0) / life)


class Discovery:
    """Estimates theta for sites, directories and hubs. Sites and directories are numbered 0, 1, ... as they are added.

    Args:
        unit: length of a day in the caller's unit of time.
    """

    def __init__(self, unit: float = 86_400.0) -> None:
        self.unit = unit
        self.sites = self.directories = 0
        self._columns = [Column("f8", 3), Column("f8", 3), Column("f8", 3)]
        self._site_sums = self._columns[0].grow(1)
        self._directory_sums = self._columns[1].grow(1)
        self._crawl_sums = rows_of(np.zeros(3))
        self._link_sums = self._columns[2].grow(1)
        self._crawl_link_sums = rows_of(np.zeros(3))

    def add_site(self) -> cython.Py_ssize_t:
        """Add a site; return its number."""
        self.sites += 1
        if self.sites > self._site_sums.shape[0]:
            self._site_sums = self._link_sums = np.zeros((0, 3))  # release the memory maps before they grow
            self._site_sums = self._columns[0].grow(self.sites)
            self._link_sums = self._columns[2].grow(self.sites)
        return self.sites - 1

    def add_directory(self) -> cython.Py_ssize_t:
        """Add a directory; return its number."""
        self.directories += 1
        if self.directories > self._directory_sums.shape[0]:
            self._directory_sums = np.zeros((0, 3))  # release the memory map before it grows
            self._directory_sums = self._columns[1].grow(self.directories)
        return self.directories - 1

    # -- observations

    def watch(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        elapsed: cython.double,
        now: cython.double,
        shown: cython.bint,
        links: cython.double = 0.0,
    ) -> cython.void:
        """Record a crawl of a page whose last crawl was `elapsed` ago.

        `shown` tells whether an earlier crawl of the page showed new pages.

        `links` has the same meaning as in `prior`.
        """
        if links > 0.0:
            self.note_links(site, 0.0, links * watched_for(elapsed, self.unit), now)
        elif not shown:
            self._add(site, directory, 0.0, watched_for(elapsed, self.unit), now)

    def credit(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        found: cython.double,
        now: cython.double,
        shown: cython.bint,
        links: cython.double = 0.0,
    ) -> cython.void:
        """Record that `found` URLs became pages, and that this page was the first to show them.

        The other arguments have the same meaning as in `watch`.
        """
        if links > 0.0:
            self.note_links(site, max(found, 0.0), 0.0, now)
        elif not shown:
            self._add(site, directory, max(found, 0.0), 0.0, now)

    def note_links(
        self, site: cython.Py_ssize_t, found: cython.double, watched: cython.double, now: cython.double
    ) -> cython.void:
        """Add `found` new pages and `watched` (time times links) to the sums over the site's lists and over all lists."""
        _note(self._link_sums[site], found, watched, now, self.unit)
        _note(self._crawl_link_sums, found, watched, now, self.unit)

    def _add(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        found: cython.double,
        watched: cython.double,
        now: cython.double,
    ) -> cython.void:
        _note(self._site_sums[site], found, watched, now, self.unit)
        _note(self._directory_sums[directory], found, watched, now, self.unit)
        _note(self._crawl_sums, found, watched, now, self.unit)

    # -- estimates

    def prior(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        now: cython.double,
        links: cython.double = 0.0,
    ) -> cython.double:
        """Return the rate of new pages that is expected of a page before it has a history of its own.

        `links` is the number of URLs on the page's first copy that no other page had shown before. If it is
        0, as for most pages, the rate is theta_d.
        """
        day: cython.double = self.unit
        if links > 0.0:
            each: cython.double = _pooled(self._crawl_link_sums, _LINK_FOUND, _LINK_DAYS * day, now, day)
            time: cython.double = _SITE_LINK_DAYS * day
            return links * _pooled(self._link_sums[site], time * each, time, now, day)
        theta: cython.double = _pooled(self._crawl_sums, _CRAWL_FOUND, _CRAWL_DAYS * day, now, day)
        theta = _pooled(self._site_sums[site], _SITE_DAYS * day * theta, _SITE_DAYS * day, now, day)
        return _pooled(
            self._directory_sums[directory], _DIRECTORY_DAYS * day * theta, _DIRECTORY_DAYS * day, now, day
        )

    def theta(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        found: cython.double,
        watched: cython.double,
        elapsed: cython.double,
        now: cython.double,
        links: cython.double = 0.0,
    ) -> cython.double:
        """Return theta_h, the number of new pages per unit of time on a hub.

        The result follows from the hub's numbers at its last crawl, `elapsed` ago.
        """
        left: cython.double = faded(1.0, elapsed, self.unit)
        expected: cython.double = self.prior(site, directory, now, links)
        weight: cython.double = self._weight(expected, links)
        return (found * left + weight * expected) / (watched * left + weight)

    def _weight(self, expected: cython.double, links: cython.double) -> cython.double:
        """Return the weight of a hub's prior: a time that is added to the time for which the hub was watched."""
        if links <= 0.0:
            return _HUB_DAYS * self.unit
        shape: cython.double = min(max(_SHAPE_PER_LINK * links, _SHAPE_LEAST), _SHAPE_MOST)
        return shape / expected

    def error(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        found: cython.double,
        watched: cython.double,
        elapsed: cython.double,
        now: cython.double,
        links: cython.double = 0.0,
    ) -> cython.double:
        """Return the standard error of theta_h: sqrt(pages found) / time watched, where both include the prior."""
        weight: cython.double = self._weight(self.prior(site, directory, now, links), links)
        span: cython.double = watched * faded(1.0, elapsed, self.unit) + weight
        return sqrt(self.theta(site, directory, found, watched, elapsed, now, links) / span)

    # -- stored state

    def site_state(self, site: int) -> tuple[float, float, float]:
        """Return (pages found, time watched, the time for which these decayed sums are valid)."""
        return tuple(float(number) for number in self._site_sums[site])  # type: ignore[return-value]

    def directory_state(self, directory: int) -> tuple[float, float, float]:
        """Return the state of a directory, in the form of `site_state`."""
        return tuple(float(number) for number in self._directory_sums[directory])  # type: ignore[return-value]

    def restore_site(self, site: int, found: float, watched: float, at: float) -> None:
        """Restore what `site_state` returned, and update the crawl's sums."""
        old: tuple = self.site_state(site)
        _note(self._crawl_sums, found - old[0], watched - old[1], at, self.unit)
        _put(self._site_sums[site], found, watched, at)

    def restore_directory(self, directory: int, found: float, watched: float, at: float) -> None:
        """Restore what `directory_state` returned."""
        _put(self._directory_sums[directory], found, watched, at)

    def _check(self) -> None:
        for sums in (np.asarray(self._site_sums), np.asarray(self._directory_sums)):
            assert (sums[:, :2] >= 0.0).all() and np.isfinite(sums).all()

    def __repr__(self) -> str:
        theta = _pooled(
            self._crawl_sums, _CRAWL_FOUND, _CRAWL_DAYS * self.unit, self._crawl_sums[_AT], self.unit
        )
        return f"Discovery({self.sites} sites, {theta * self.unit:.3g} new pages a page and day)"


@cython.cfunc
@cython.exceptval(check=False)
def _note(
    sums: cython.double[::1],
    found: cython.double,
    watched: cython.double,
    now: cython.double,
    unit: cython.double,
) -> cython.void:
    """Let the sums decay up to `now`, unless they have decayed to a later time. Then add `found` and `watched`."""
    left: cython.double = faded(1.0, now - sums[_AT], unit)
    sums[_FOUND] = max(sums[_FOUND] * left + found, 0.0)
    sums[_WATCHED] = max(sums[_WATCHED] * left + watched, 0.0)
    sums[_AT] = max(now, sums[_AT])


@cython.cfunc
@cython.exceptval(check=False)
def _pooled(
    sums: cython.double[::1],
    pages: cython.double,
    time: cython.double,
    now: cython.double,
    unit: cython.double,
) -> cython.double:
    """Return (found + pages) / (watched + time), with the sums decayed to `now`."""
    left: cython.double = faded(1.0, now - sums[_AT], unit)
    return (sums[_FOUND] * left + pages) / (sums[_WATCHED] * left + time)


@cython.cfunc
@cython.exceptval(check=False)
def _put(
    sums: cython.double[::1], found: cython.double, watched: cython.double, at: cython.double
) -> cython.void:
    sums[_FOUND] = found
    sums[_WATCHED] = watched
    sums[_AT] = at
