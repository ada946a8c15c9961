"""Test whole processes with a URL order. Kills while URLs are moved neither lose a URL nor repeat a fetch."""

from typing import Any

import msgspec
import pytest

from crawler.frontier.discovery.intake import Intake
from crawler.lab.cluster.cluster_settings import ClusterSettings
from crawler.lab.cluster.synthetic_web import WebSpec
from tests.lab.cluster.planted import run

SETTINGS = ClusterSettings(
    web=WebSpec(hosts=8, pages=60),
    faults=("kill", "power"),
    count=8,
    within=60.0,
    tree={"cache": {"bits": 10}},
)


@pytest.mark.parametrize(("order", "processes", "seed"), [("opic", 1, 3), ("opic", 2, 4), ("depth", 3, 2)])
def test_faults_break_no_rule_while_urls_are_moved(
    monkeypatch: pytest.MonkeyPatch, order: str, processes: int, seed: int
) -> None:
    """An earlier version lost a moved URL: because of an outdated host record, the queue began after this URL."""
    moved, move = [], Intake._move

    def counted(self: Intake, *arguments: Any) -> None:
        # a number is kept instead of the URL, because no object of the world may be kept alive
        moved.append(1)
        move(self, *arguments)

    monkeypatch.setattr(Intake, "_move", counted)
    tree = SETTINGS.tree | {"order": {"name": order}}
    verdict = run(msgspec.structs.replace(SETTINGS, processes=processes, seed=seed, tree=tree))
    assert verdict.flawless, verdict.examples
    assert len(moved) > 5 and verdict.pages > 50
