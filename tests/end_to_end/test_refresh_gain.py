"""Test on a small web over HTTP that the refresh frontier keeps copies fresh, and that the test notices a bug."""

import asyncio
from contextvars import ContextVar
from pathlib import Path

import pytest

from crawler.frontier.refresh.change_intake import ChangeIntake
from crawler.lab.changing.gain import DEAF, LEARNED, Arm, GainGame, Played, play
from crawler.lab.changing.web import HostSpec

HOSTS = tuple(
    HostSpec(name, pages=10, directories=2, rate=1.0, lastmod="none", recall=1.0) for name in "abcd"
)
# Requests per second. At the first rate, a run takes 4 s. A busy machine delays all requests, by a smaller part of a
# page's interval if the rate is lower.
RATES = (60.0, 12.0)


DROPPED = ContextVar("DROPPED", default=False)  # whether the signals of this crawl are dropped


async def dropping(game: GainGame, arm: Arm, folder: Path) -> Played:
    """Run an arm with a planted bug that drops its signals."""
    DROPPED.set(True)
    return await play(game, arm, folder)


def test_signals_improve_freshness_and_lost_signals_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If there is a signal for every change, more copies are current.

    A planted bug that drops signals is noticed. All crawls run at the same time in one event loop, so a busy machine
    delays all of them alike. If it delays them so much that signals are of little use, they run again, slower.
    """
    note = ChangeIntake.note_changes
    monkeypatch.setattr(
        ChangeIntake,
        "note_changes",
        lambda self, fingerprints, *rest: (
            len(fingerprints) if DROPPED.get() else note(self, fingerprints, *rest)
        ),
    )

    async def side_by_side(rate: float) -> list[Played]:
        game = GainGame(HOSTS, visits=6.0, rate=rate, budget=3.0, patience=10.0)
        folder = tmp_path / f"{rate:g}"
        return await asyncio.gather(
            play(game, LEARNED, folder / "told"),
            play(game, DEAF, folder / "deaf"),
            dropping(game, LEARNED, folder / "lost"),
        )

    for rate in RATES:
        came = asyncio.run(side_by_side(rate))
        assert [one.report["conservation"] for one in came] == ["holds"] * 3
        told, deaf, lost = (one.freshness for one in came)
        if told > deaf + 0.03 and told > lost + 0.03:
            return
    raise AssertionError((told, deaf, lost))


def test_a_lying_validator_does_not_affect_other_pages_of_the_host(tmp_path: Path) -> None:
    """Once, a false validator of one page or directory turned off conditional requests for the whole host."""
    lies = (("/d1/p5.html", "etag-fixed"), ("/d0/", "etag-fixed"))
    host = HostSpec("a", pages=20, directories=4, rate=1.0, lastmod="none", exceptions=lies)
    game = GainGame((host,), visits=24.0, rate=60.0, budget=4.0, patience=20.0)
    came = asyncio.run(play(game, DEAF, tmp_path))
    assert came.conditional > 0.6 * came.requests
    assert came.not_modified > came.repeated
