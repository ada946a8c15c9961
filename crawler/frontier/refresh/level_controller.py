# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""The level controller sets the common level and the levels of saturated hosts, and measures the rate of fetches.

`frontier/refresh/README.md`, "Rules" (rules 2 and 3), says when the common level and the levels of saturated
hosts move, and what a calm crawl is. A host's own level is `boost` times the common level. A late page does
not raise the common level if it had to wait for a busy host, because the pages of a host that is rarely idle
are late at any level.

*Jumps of importance* occur, for example, when many users request pages. Such a jump moves the level at once.

The control of the level by the pages that are due is from Busa-Fekete et al., section 5.2.
"""

import cython
from cython.cimports.crawler.frontier.refresh.tables import Tables
from cython.cimports.libc.math import cbrt, log

# The following constants were chosen so that the level neither lags nor overshoots.
# With few pages, the size of a step is this number divided by the number of pages.
_STEP_OF_ONE = cython.declare(cython.double, 0.25)
_SMALL_STEP_MAX = cython.declare(cython.double, 0.01)
_STEP_MAX = cython.declare(cython.double, 0.05)
# number of steps taken at once if a page's value is e times the level, or 1/e of the level
_FAR = cython.declare(cython.double, 20.0)
# maximum number of steps taken at once, for a page whose value is far from the level
_FAR_MAX = cython.declare(cython.double, 32.0)
# in a long run of steps in one direction, the step is doubled at most this many times
_RUN_MAX = cython.declare(cython.int, 4)
# The crawl is calm if no page was due within this share of the mean revisit interval.
_CALM_SHARE = cython.declare(cython.double, 1.0 / 64.0)
# While the crawl is calm and has more pages than this, the step is smaller, by the cube root of the ratio. The
# fluctuation of the level then does not depend on the number of pages.
_CALM_PAGES = cython.declare(cython.double, 400.0)
_HOST_GAIN_MAX = cython.declare(cython.double, 0.05)  # maximum step of a small host's own level
_HOST_STEP_MAX = cython.declare(cython.double, 0.2)
# If a fetched page is worth less than its host's own level, this level falls at most by this factor.
_FALL_MAX = cython.declare(cython.double, 0.5)
# a host is saturated if it is idle for less than this share of the time
_SATURATED = cython.declare(cython.double, 0.05)
_IDLE_WEIGHT = cython.declare(cython.double, 1.0 / 128.0)  # weight of one fetch in a host's mean idle share
# If a host is idle for more than IDLE_SHARE, its own level falls faster by this factor.
_IDLE_STEP = cython.declare(cython.double, 16.0)
# the time between takes is averaged over this number of takes
_TICK_TAKES = cython.declare(cython.double, 1000.0)
# if the time between two takes (choices of a page) is longer than the mean by this factor, it counts as a
# pause
_PAUSE = cython.declare(cython.double, 10.0)
_SCALE_EVERY = cython.declare(cython.Py_ssize_t, 64)  # takes
_LEVEL_MIN = cython.declare(cython.double, 1e-200)
_LEVEL_MAX = cython.declare(cython.double, 1e200)
_INFINITY = cython.declare(cython.double, float("inf"))

_FIRST_REVISIT = cython.declare(cython.double, 28.0 * 86_400.0)  # revisit interval until a rate is known

# The queues or the deadlines use the following constants, too.
# A host that is idle for more than this share of the time needs no level of its own.
IDLE_SHARE = 0.25
# A page whose value is at least this share of the level is due. The share is less than 1, because keys have
# errors of up to 1e-3.
STANDS = 0.97
RATIO_MAX = 1e4  # values above this multiple of the level are treated as equal


class LevelController:
    """The level and the rate, and the time constants that are computed from the rate.

    `unknown` is True while `level` is a guess, and `spaced` is False while `revisit` is one. `caught_up` is the
    last instant at which a page was chosen that was not due, because no page was due.

    Args:
        level: the initial level; 0 if it is not known.
        gain: the step of the level.
        clock_min, clock_max: bounds of the neighbourhood's time constant `scale`.
    """

    def __init__(self, tables: Tables, level: float, gain: float, clock_min: float, clock_max: float) -> None:
        self.tables = tables
        self.level, self.rate = level, 0.0
        self.gain = gain
        self.unknown = level <= 0.0
        self.previous, self.tick = -_INFINITY, 0.0
        self._clock_min, self._clock_max, self._measured = clock_min, clock_max, 0.0
        self.revisit, self.spaced = _FIRST_REVISIT, False
        self.scale = min(max(0.25 * _FIRST_REVISIT, clock_min), clock_max)
        self._run, self._side = 0, 0
        self.caught_up = -_INFINITY

    def fetch_rate(self) -> cython.double:
        """Return the fetches per unit of time, as set or else as measured; 0 if the rate is neither set nor measured."""
        if self.rate > 0.0:
            return self.rate
        return 1.0 / self.tick if self.tick > 0.0 else 0.0

    def set_scale(self) -> cython.void:
        """Compute the mean revisit interval and the neighbourhood's time constant from the rate and the page count."""
        rate: cython.double = self.fetch_rate()
        if rate > 0.0:
            self.set_revisit(max(self.tables.pages.size, 1) / rate)

    def set_revisit(self, revisit: cython.double) -> cython.void:
        """Set the mean revisit interval, and what depends on it.

        These are the scale of the clock, the prior of rates, and the memory of restless pages.
        """
        self.revisit, self.spaced = revisit, True
        self.scale = min(max(0.25 * revisit, self._clock_min), self._clock_max)
        self.tables.learning.scale = self.scale
        self.tables.learning.plain_share = min(4.0 * self.scale / revisit, 1.0)
        self.tables.learning.rates.set_revisit(revisit)
        self.tables.learning.restless.set_revisit(revisit)

    def note_take(self, host: cython.int, now: cython.double, takes: cython.Py_ssize_t) -> cython.void:
        """Record that a page of the host is taken, and measure the rate."""
        if self.previous > -_INFINITY:
            self._measure(now - self.previous)
            if takes % _SCALE_EVERY == 0:
                self.set_scale()
        self.previous = max(now, self.previous)
        self.tables.host_rows[host].previous = now

    def adjust(self, before: cython.double, after: cython.double) -> cython.void:
        """Adjust the level to new importances mu. The sum of their square roots was `before` and is now `after`.

        If all pages are fetched often, the rate is the sum of sqrt(mu Delta / (2 level)). At a given rate,
        the level is thus proportional to the square of that sum. Without this adjustment, the level would
        move only in steps. It would need a thousand fetches to follow importances that rise by a factor of
        1e6.
        """
        if not self.unknown and before > 0.0 and after > 0.0:
            self.level = min(max(self.level * (after / before) ** 2, _LEVEL_MIN), _LEVEL_MAX)

    def is_calm(self, now: cython.double) -> cython.bint:
        """Return whether no page was due a short time ago, so that a page that is due now waits only for a short time."""
        return 0.0 <= now - self.caught_up <= _CALM_SHARE * self.revisit

    def judge(
        self,
        host: cython.int,
        deadline: cython.double,
        worth: cython.double,
        jumped: cython.bint,
        tick: cython.double,
        gap: cython.double,
        now: cython.double,
    ) -> cython.void:
        """Adjust the levels after a page is taken.

        The page was due at `deadline`, and its value is `worth` times its host's level. `jumped` is True if a
        signal made the page due. `tick` is the time since the last fetch of any page, `gap` the time since
        the last fetch of a page of this host.
        """
        ready: cython.double = self.tables.host_rows[host].ready
        # the page's value divided by the common level
        above: cython.double = worth * self.tables.host_rows[host].boost
        if deadline > now:
            # If the value is above the level, the level has fallen since the page's key was computed.
            if above < 1.0:
                self._turn(-1, above, now)
        elif (
            not jumped
            and above >= STANDS
            and now - deadline > tick
            and (now - ready > tick or self.tables.host_rows[host].idle > IDLE_SHARE)
        ):
            self._turn(1, above, now)
        idle: cython.double = min(max((now - ready) / gap, 0.0), 1.0) if 0.0 < gap < _INFINITY else 1.0
        idle = self.tables.host_rows[host].idle + _IDLE_WEIGHT * (idle - self.tables.host_rows[host].idle)
        self.tables.host_rows[host].idle = idle
        if not jumped and deadline < ready and worth > 1.0 and idle < _SATURATED:
            self._boost(host, 1, 1.0)
        elif self.tables.host_rows[host].boost > 1.0:
            self._boost(host, -1, _IDLE_STEP if idle > IDLE_SHARE else 1.0)
            if worth < 1.0:
                fallen: cython.double = self.tables.host_rows[host].boost * max(worth, _FALL_MAX)
                self.tables.host_rows[host].boost = max(1.0, fallen)

    def _turn(self, side: cython.int, worth: cython.double, now: cython.double) -> cython.void:
        """Move the level one step up or down after taking a page whose value is `worth` times the level.

        The step grows with the distance between that value and the level, and with the number of steps in a
        row in the same direction. Larger steps would overshoot, because most keys follow the level only at
        their next check.
        """
        self._run = self._run + 1 if side == self._side else 1
        self._side = side
        pages: cython.Py_ssize_t = max(self.tables.pages.size, 1)
        run: cython.int = self._run // max(64, pages >> 2)
        far: cython.double = _FAR * abs(log(max(worth, 1.0 / RATIO_MAX)))
        gain: cython.double = self.gain
        if pages > _CALM_PAGES and self.is_calm(now):
            gain *= cbrt(_CALM_PAGES / pages)
        step: cython.double = max(gain, min(_STEP_OF_ONE / pages, _SMALL_STEP_MAX))
        step *= max(1 << min(run, _RUN_MAX), min(max(far, 1.0), _FAR_MAX))
        self.level *= 1.0 + side * min(step, _STEP_MAX)

    def _boost(self, host: cython.int, side: cython.int, pace: cython.double) -> cython.void:
        """Move the host's own level one step.

        The keys of the host's pages follow the level only after some time. So a step is so small that the steps
        made during this time change the level by about the level's own size.
        """
        run: cython.int = self.tables.host_rows[host].run
        run = run + side if run * side > 0 else side
        self.tables.host_rows[host].run = run
        pages: cython.int = max(self.tables.host_rows[host].pages, 1)
        step: cython.double = min(max(_STEP_OF_ONE / pages, self.gain), _HOST_GAIN_MAX)
        step *= pace * (1 << min(abs(run) // max(16, pages >> 2), 4))
        step = min(step, _HOST_STEP_MAX)
        self.tables.host_rows[host].boost = min(
            max(self.tables.host_rows[host].boost * (1.0 + side * step), 1.0), RATIO_MAX
        )

    def _measure(self, tick: cython.double) -> cython.void:
        """Update the mean time between takes, excluding pauses."""
        if tick < 0.0:
            return
        if self.tick > 0.0:
            tick = min(tick, _PAUSE * self.tick)
        self._measured = min(self._measured + 1.0, _TICK_TAKES)
        self.tick += (tick - self.tick) / self._measured
