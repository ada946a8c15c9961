"""All policies of the league by name: the rules of other crawlers, and this crawler's own frontier."""

import numpy as np

from crawler.frontier.refresh import Settings
from crawler.lab.league.exact import Exact
from crawler.lab.league.rivals import RIVALS
from crawler.lab.league.shipped import DEAF, SHIPPED, Shipped
from crawler.lab.league.world import WARMUP, Policy, World, play
from crawler.lab.living.calibration import Calibration

EXACT = "ncis-exact"
POLICIES = (*RIVALS, *SHIPPED, EXACT)
# The policies that read signals. All policies that are not listed here ignore the signals of an arm.
LISTENING = {"believe", EXACT, *(name for name in SHIPPED if name not in DEAF)}


def judged(name: str, world: World, rate: float) -> np.ndarray:
    """Compare the stated probabilities of a policy with the truth; return the sums that `calibration.deciles` needs."""
    policy = Shipped(world, rate, Settings(**SHIPPED[name]), judged=True, born=world.born)
    horizon = world.horizon
    seen = Calibration(policy.fresh, world.changes, world.site, WARMUP * horizon, horizon, world.died)
    play(world, policy, rate, seen)
    return seen.sums


def make(name: str, world: World, rate: float) -> Policy:
    """Return the policy `name`, ready to play `world` with `rate` fetches per second."""
    if name in SHIPPED:
        return Shipped(world, rate, Settings(**SHIPPED[name]))
    if name == EXACT:
        return Exact(world, rate)
    return RIVALS[name](world, rate)
