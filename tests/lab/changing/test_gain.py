"""Test the arms of a comparison on the changing web: all arms see the same changes."""

from crawler.lab.changing.gain import GainGame, web_of
from crawler.lab.changing.web import HostSpec

HOSTS = tuple(
    HostSpec(name, pages=10, directories=2, rate=1.0, lastmod="none", recall=1.0) for name in "abcd"
)
GAME = GainGame(HOSTS, visits=4.0, rate=40.0, budget=1.0)


def test_all_arms_see_the_same_changes() -> None:
    one, other = web_of(GAME, 1_000.0), web_of(GAME, 5_000.0)
    assert [[round(at - 1_000.0, 6) for at in times] for times in one.changes] == [
        [round(at - 5_000.0, 6) for at in times] for times in other.changes
    ]
    assert one.signals(1_000.0, 1_002.0) == other.signals(5_000.0, 5_002.0) != []
    assert len(one.signals(0.0, 1e9)) == sum(map(len, one.changes)), (
        "with recall 1 and no noise, each change has one signal"
    )
