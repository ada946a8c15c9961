"""All policies of the league by name: the rules of others, and the frontier that the crawler runs."""

from crawler.lab.league.rivals import RIVALS
from crawler.lab.league.world import Policy, World

POLICIES = tuple(RIVALS)
LISTENING = {"believe"}  # to signals; the others play every arm of signals as if there were none


def make(name: str, world: World, rate: float) -> Policy:
    """The policy `name`, ready to play `world` with `rate` fetches a second."""
    return RIVALS[name](world, rate)
