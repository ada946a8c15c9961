"""What the refresh frontier gains over HTTP, small: the log must show it, and must show when it is lost."""

import asyncio
from pathlib import Path

import pytest

from crawler.frontier.refresh.refreshing import Refresh
from crawler.lab.changing.gain import DEAF, LEARNED, Arm, GainGame, Played, play, web_of
from crawler.lab.changing.web import HostSpec

HOSTS = tuple(
    HostSpec(name, pages=10, directories=2, rate=1.0, lastmod="none", recall=1.0) for name in "abcd"
)
GAME = GainGame(HOSTS, visits=8.0, rate=80.0, budget=1.0)  # 4 s each


def played(folder: Path, arm: Arm) -> Played:
    one = asyncio.run(play(GAME, arm, folder / arm.name))
    assert one.report["conservation"] == "holds"
    return one


def changes_met(one: Played) -> float:
    """The share of the requests that found a change; equal numbers of requests cannot tell more on a busy machine."""
    refresh = one.report["refresh"]
    return float(refresh["content_changed"] / refresh["done"])


def test_word_of_changes_is_followed_and_a_lost_one_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With word of every change nearly all requests find one; planted: the schedule never hears."""
    told, deaf = played(tmp_path, LEARNED), played(tmp_path, DEAF)
    assert changes_met(told) > changes_met(deaf) + 0.15
    assert told.freshness > deaf.freshness
    monkeypatch.setattr(Refresh, "signal", lambda self, fingerprints, source, now: len(fingerprints))
    lost = asyncio.run(play(GAME, LEARNED, tmp_path / "lost"))
    assert changes_met(lost) < changes_met(told) - 0.15


def test_arms_meet_the_same_changes() -> None:
    one, other = web_of(GAME, 1_000.0), web_of(GAME, 5_000.0)
    assert [[round(at - 1_000.0, 6) for at in times] for times in one.changes] == [
        [round(at - 5_000.0, 6) for at in times] for times in other.changes
    ]
    assert one.signals(1_000.0, 1_002.0) == other.signals(5_000.0, 5_002.0) != []
    assert len(one.signals(0.0, 1e9)) == sum(map(len, one.changes)), "recall 1, no noise"
