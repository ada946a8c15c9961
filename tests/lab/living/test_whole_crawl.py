"""Test a whole process on a drawn world: it finds all pages, uses up its rate, and is not worse than uniform."""

import pytest

from crawler.lab.living.playing import UNIFORM, played
from crawler.lab.living.whole_crawl import crawled
from crawler.lab.living.worlds import DAY, HostKind, WorldSpec, draw

# A small web whose pages change about once a day and are fetched every 16 hours.
SMALL = WorldSpec("small", (HostKind(25, DAY),) * 4, visits=1.5, rounds=6.0, warm_up=0.4)


@pytest.mark.parametrize("name", ["crawl", "crawl-pooled", "crawl-uniform"])
def test_a_crawl_spends_its_rate_and_does_not_lose_to_uniform(name: str) -> None:
    """The crawl spends up to 5 % of its fetches on the four index pages, but uniform spends all fetches on pages."""
    world = draw(SMALL, 1)
    uniform, run = played(UNIFORM, world), crawled(name, world)
    assert run.fetches == pytest.approx(uniform.fetches, rel=0.05)
    assert run.freshness > uniform.freshness - 0.04
    assert run.largest < 0.5
