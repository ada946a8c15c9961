"""Test that the crawler's frontier crawls link graphs completely and politely.

An order that has more information finds good pages earlier.
"""

import random
from pathlib import Path

import numpy as np
import pytest

from crawler.errors import UsageError
from crawler.lab import __main__ as lab
from crawler.lab.order import walk as walking
from crawler.lab.order.link_graph import LinkGraph, of_folder, page_rank, synthetic
from crawler.lab.order.planted_quality import PLANTINGS, WORD, plant
from crawler.lab.order.walk import found_after, walk

GRAPH = synthetic(250, 10, 3)


@pytest.mark.parametrize("kind", PLANTINGS)
def test_qualities_sum_to_one_over_what_can_be_reached(kind: str) -> None:
    lonely = LinkGraph(
        [*GRAPH.urls, "http://site0.test/lonely"], [*GRAPH.titles, ""], [*GRAPH.links, []], [0]
    )
    planted = plant(kind, lonely, 1)
    assert planted.quality.sum() == pytest.approx(1.0) and planted.quality[-1] == 0.0
    assert (planted.quality[:-1] > 0).all() and np.array_equal(
        planted.quality, plant(kind, lonely, 1).quality
    )
    assert not np.array_equal(planted.quality, plant(kind, lonely, 2).quality)


@pytest.mark.parametrize("order", ["oracle", "opic", "breadth-first"])
def test_every_page_is_fetched_once_under_any_order_and_rate(order: str) -> None:
    planted = plant("rank", GRAPH, 1)
    for rate in (0.0, 2.0):
        pages = walk(GRAPH, planted, order, rate=rate, seed=1)
        assert sorted(pages) == sorted(GRAPH.depths())


def test_gaps_between_requests_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gaps are measured between the instants at which requests begin."""
    began: dict[str, list[float]] = {}
    begin = walking._Walk._begin

    def noted(self: walking._Walk, fetch_task: object, now: float) -> None:
        if fetch_task.kind == "page":  # type: ignore[attr-defined]
            began.setdefault(fetch_task.hostname, []).append(now)  # type: ignore[attr-defined]
        begin(self, fetch_task, now)  # type: ignore[arg-type]

    monkeypatch.setattr(walking._Walk, "_begin", noted)
    walk(GRAPH, plant("rank", GRAPH, 1), "opic", rate=0.0, seed=1)
    gaps = [two - one for each in began.values() for one, two in zip(each, each[1:], strict=False)]
    assert len(began) == 10 and min(gaps) >= walking.DELAY + walking.TOOK - 1e-6


def test_better_informed_orders_find_quality_earlier(tmp_path: Path) -> None:
    weights = tmp_path / "weights"
    weights.write_text(f"bias -3\nanchor:{WORD} 4\nparent:score 0.3\n")
    found: dict[tuple[str, str], list[float]] = {}
    for kind, orders in (
        ("topic", ("oracle", "words", "breadth-first")),
        ("rank", ("oracle", "opic", "breadth-first")),
    ):
        for order in orders:
            runs = []
            for seed in (1, 2, 3):
                planted = plant(kind, GRAPH, seed)
                pages = walk(GRAPH, planted, order, rate=2.0, seed=seed, weights=str(weights))
                runs.append(found_after(pages, planted.quality, [0.2, 0.5, 1.0]))
            found[kind, order] = np.mean(runs, axis=0).tolist()
            assert found[kind, order][2] == pytest.approx(1.0)
    for at in (0, 1):
        for kind, informed in (("topic", "words"), ("rank", "opic")):
            assert found[kind, "oracle"][at] >= found[kind, informed][at] - 0.02
            assert found[kind, informed][at] > found[kind, "breadth-first"][at] + 0.03


def test_rank_equals_a_hand_computed_example() -> None:
    """In the example, two pages link to a third, which links back to the first."""
    graph = LinkGraph(["a", "b", "c"], [""] * 3, [[(2, "")], [(2, "")], [(0, "")]], [0])
    rank = page_rank(graph, rounds=200)
    a, b, c = rank
    assert b == pytest.approx(0.15) and a == pytest.approx(0.15 + 0.85 * c)
    assert c == pytest.approx(0.15 + 0.85 * (a + b)) and rank.mean() == pytest.approx(1.0)


def test_a_folder_of_documentation(tmp_path: Path) -> None:
    for host in ("one", "two", "few"):
        (tmp_path / host / "deep").mkdir(parents=True)
        names = ["index.html", *(f"deep/{n}.html" for n in range(9 if host != "few" else 3))]
        for name in names:
            links = "".join(f'<a href="{"../" * name.count("/")}deep/{n}.html">to {n}</a>' for n in range(9))
            outside = '<a href="https://elsewhere.test/">out</a><a href="missing.html">x</a>'
            (tmp_path / host / name).write_text(f"<title>{host} {name}</title>{links}{outside}")
    graph = of_folder(tmp_path, 8, random.Random(1))
    assert len(graph.urls) == 16 and len(graph.first) == 2 and len(graph.depths()) == 16
    assert graph.titles[graph.first[0]] == "one index.html"
    first = dict(graph.links[graph.first[0]])
    assert sum(text.startswith("to ") for text in first.values()) == 7
    assert first[graph.first[1]] == "two index.html", "first pages name those of other hosts"
    with pytest.raises(UsageError):
        of_folder(tmp_path / "few", 8, random.Random(1))


def test_the_command_prints_a_row_per_order(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["order", "--pages", "120", "--hosts", "6", "--seeds", "2", "--quality", "rank"]
    assert lab.main("lab", [*arguments, "--orders", "oracle,depth", "--out", str(tmp_path / "o.csv")]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("120 pages") and [line.split()[1] for line in lines[2:]] == ["oracle", "depth"]
    assert len((tmp_path / "o.csv").read_text().splitlines()) >= 3
    with pytest.raises(UsageError, match="--orders: 'luck' is not one of"):
        lab.main("lab", ["order", "--orders", "luck"])
