"""A policy with the true parameters of each page, as a reference for what the crawler's estimates cost.

`true_parameters` computes the parameters of the pages of the league in hindsight: the change rate of a page
from all of its changes, and the recall and the rate of false signals from all signals of its site. Several
changes of a page in a day count as one, and signals are read once a day. So a signal is true if its page
changed on the same day.

The model of the policy assumes that pages change independently, at constant rates. In the histories of the
league, pages do not. So even this policy states wrong probabilities, and its errors show how much of an error
is due to the model, and not to the estimates.
"""

import numpy as np

from crawler.freshness.params import PageParameters
from crawler.frontier.refresh import Settings
from crawler.lab.league.shipped import Shipped
from crawler.lab.league.world import DAY, World, WorldPages
from crawler.lab.living.course import Era

RATE_LEAST = 1e-12  # changes per second of a page without changes
RECALL_MAX = 0.999


class TrueParameters(Shipped):
    """NCIS with known parameters.

    A row of `truth` holds the change rate of a page, and the recall and the rate of false signals of its source.
    """

    def __init__(
        self,
        world: WorldPages,
        rate: float,
        truth: np.ndarray,
        *,
        judged: bool = False,
        born: np.ndarray | None = None,
    ) -> None:
        settings = Settings(neighbourhood=False, pooling=False)
        super().__init__(world, rate, settings, judged=judged, born=born)
        self._set_truth(truth)

    def _set_truth(self, truth: np.ndarray) -> None:
        self._truth = [
            PageParameters(importance, *row)
            for importance, row in zip(self._importance, truth.tolist(), strict=True)
        ]

    def add(self, page: int, now: float) -> None:
        super().add(page, now)
        self.schedule.facts.set_page(self._number[page], self._truth[page], now)

    def begin_era(self, era: Era, now: float) -> None:
        super().begin_era(era, now)
        self._set_truth(np.stack([era.rates, era.recall, era.false_rate], axis=1))
        for page, number in enumerate(self._number):
            if number >= 0:
                self.schedule.facts.set_page(number, self._truth[page], now)


def true_parameters(world: World) -> np.ndarray:
    """Return the change rate, the recall and the rate of false signals of each page (n, 3)."""
    days = [{int(at // DAY) for at in times} for times in world.changes]
    changes = np.array([len(each) for each in days], dtype=float)
    told, false = np.zeros(len(world)), np.zeros(len(world))
    for day, heard in enumerate(world.signals):
        for page in heard.pages.tolist():
            (told if day in days[page] else false)[page] += 1.0
    life = np.maximum(np.minimum(world.died, world.horizon) - world.born, DAY)
    told, false, every, time = (
        np.bincount(world.site, weights=values)[world.site] for values in (told, false, changes, life)
    )
    recall = np.minimum(told / np.maximum(every, 1.0), RECALL_MAX)
    return np.stack([np.maximum(changes / life, RATE_LEAST), recall, false / time], axis=1)
