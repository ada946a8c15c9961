"""All policies of the league by name: the rules of other crawlers, and this crawler's own frontier."""

import numpy as np

from crawler.frontier.refresh import Settings
from crawler.lab.league.exact import Exact
from crawler.lab.league.rivals import RIVALS
from crawler.lab.league.shipped import DEAF, SHIPPED, Shipped
from crawler.lab.league.truth import TrueParameters, true_parameters
from crawler.lab.league.world import WARMUP, Policy, World, play
from crawler.lab.living.calibration import Calibration

EXACT = "ncis-exact"
TRUE = "ncis-true"
POLICIES = (*RIVALS, *SHIPPED, EXACT, TRUE)
STATING = (*SHIPPED, TRUE)  # the policies that state how likely a copy is current
# The policies that read signals. All policies that are not listed here ignore the signals of an arm.
LISTENING = {"believe", EXACT, TRUE, *(name for name in SHIPPED if name not in DEAF)}


def judged(name: str, world: World, rate: float) -> np.ndarray:
    """Compare the stated probabilities of a policy with the truth; return the sums that `calibration.deciles` needs."""
    policy = make(name, world, rate, judged=True)
    assert isinstance(policy, Shipped)
    horizon = world.horizon
    seen = Calibration(policy.fresh, world.changes, world.site, WARMUP * horizon, horizon, world.died)
    play(world, policy, rate, seen)
    return seen.sums


def make(name: str, world: World, rate: float, *, judged: bool = False) -> Policy:
    """Return the policy `name`, ready to play `world` with `rate` fetches per second.

    `judged` has the same meaning as in `Shipped`.
    """
    born = world.born if judged else None
    if name in SHIPPED:
        return Shipped(world, rate, Settings(**SHIPPED[name]), judged=judged, born=born)
    if name == TRUE:
        return TrueParameters(world, rate, true_parameters(world), judged=judged, born=born)
    if name == EXACT:
        return Exact(world, rate)
    return RIVALS[name](world, rate)
