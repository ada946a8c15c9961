"""The result of a crawl of a drawn world, computed from the log of the world's server.

Times are those of the world. Freshness is measured as in `playing.py`.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from crawler.lab.copies import Copies
from crawler.lab.living.playing import Freshness, WorldRun, run_of
from crawler.lab.living.worlds import DrawnWorld


class Answered(NamedTuple):
    """One answer of the server. `whole` is True if it confirmed the page's present version, or contained it."""

    at: float
    page: int
    whole: bool = True


def result(world: DrawnWorld, answers: Iterable[Answered]) -> WorldRun:
    """Return the result of the crawl that received these answers, which are in the order of time."""
    begin, end = world.spec.warm_up * world.horizon, world.horizon
    ends = np.full(len(world), end)
    copies = Copies(world.changes, begin, ends.tolist(), world.course.contents)
    freshness = Freshness(world, begin, ends)
    counted = []
    for answer in answers:
        if answer.at >= end:
            break
        freshness.count(copies, answer.at)
        if answer.whole:
            copies.keep(answer.page, answer.at)
        if answer.at >= begin:
            counted.append((answer.at, answer.page))
    freshness.count(copies, np.inf)
    at, page = np.array([at for at, _ in counted]), np.array([page for _, page in counted], dtype=int)
    return run_of(world, freshness.mean(), at, world.site[page], begin, end, course=freshness.course())
