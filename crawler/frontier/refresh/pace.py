# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""The pace of a schedule: its rate of fetches, the level of values, and the time between two crawls of a page.

`level_controller.py` moves the level so that the fetches that are due match the rate. The properties of
`Pace` let callers set and read the rate, the level and the time between two crawls.
"""

import cython
from cython.cimports.crawler.frontier.refresh.level_controller import LevelController
from cython.cimports.crawler.frontier.refresh.queues import Queues

_INFINITY = cython.declare(cython.double, float("inf"))


class Pace:
    """The pace of the schedule to which `controller` and `queues` belong."""

    def __init__(self, controller: LevelController, queues: Queues) -> None:
        self._controller, self._queues = controller, queues

    @property
    def level(self) -> float:
        """The least value at which a page is worth a fetch. Values are in units of importance x time."""
        return self._controller.level

    @level.setter
    def level(self, level: float) -> None:
        if not 0.0 < level < _INFINITY:
            raise ValueError(f"level {level}")
        self._controller.level = self._queues.swept_level = level
        self._controller.unknown, self._queues.swept = False, 0  # the keys are recomputed later, row by row

    @property
    def level_is_known(self) -> bool:
        """Return whether the level is more than a guess: it was set, stored or found for the rate of fetches."""
        return not self._controller.unknown

    @property
    def rate(self) -> float:
        """The fetches per unit of time, as set or else as measured; 0 if the rate is not known."""
        return self._controller.fetch_rate()

    @rate.setter
    def rate(self, rate: float) -> None:
        if not 0.0 <= rate < _INFINITY:
            raise ValueError(f"rate {rate}")
        self._controller.rate = rate
        self._controller.set_scale()

    @property
    def revisit(self) -> float:
        """The mean time between two crawls of a page, as set or as computed from a rate; 0 while it is only a guess."""
        return self._controller.revisit if self._controller.spaced else 0.0

    @revisit.setter
    def revisit(self, revisit: float) -> None:
        if not 0.0 < revisit < _INFINITY:
            raise ValueError(f"revisit {revisit}")
        self._controller.set_revisit(revisit)
