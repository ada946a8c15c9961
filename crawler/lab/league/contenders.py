"""All policies of the league by name: the rules of others, and the frontier that the crawler runs."""

from crawler.frontier.refresh import Settings
from crawler.lab.league.exact import Exact
from crawler.lab.league.rivals import RIVALS
from crawler.lab.league.shipped import DEAF, SHIPPED, Shipped
from crawler.lab.league.world import Policy, World

EXACT = "ncis-exact"
POLICIES = (*RIVALS, *SHIPPED, EXACT)
# Who reads signals; the others play every arm of signals as if there were none.
LISTENING = {"believe", EXACT, *(name for name in SHIPPED if name not in DEAF)}


def make(name: str, world: World, rate: float) -> Policy:
    """The policy `name`, ready to play `world` with `rate` fetches a second."""
    if name in SHIPPED:
        return Shipped(world, rate, Settings(**SHIPPED[name]))  # type: ignore[arg-type]
    if name == EXACT:
        return Exact(world, rate)
    return RIVALS[name](world, rate)
