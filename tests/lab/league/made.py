"""Make small histories and worlds for the tests of the league."""

import csv
from pathlib import Path

import numpy as np

from crawler.lab.league.histories import SiteHistory
from crawler.lab.league.world import DAY, Heard, World

EXCERPT = Path(__file__).resolve().parents[2] / "data" / "league"
T0 = 1_600_000_000


def csv_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a CSV file that a command has written."""
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    return list(csv.DictReader(lines))


def history(
    changes: list[tuple[int, float, int, int]],
    *,
    pages: int = 3,
    born: dict[int, float] | None = None,
    died: dict[int, float] | None = None,
    dirs: list[int] | None = None,
    published: list[float] | None = None,
    days: float = 100.0,
    name: str = "made",
) -> SiteHistory:
    """Return a history of changes (page, day, added, removed).

    Days are counted from the start of the window of `days`.
    """

    def instant(day: float) -> int:
        return T0 + round(day * DAY)

    return SiteHistory(
        name=name,
        born=np.array([instant((born or {}).get(page, -10.0)) for page in range(pages)]),
        died=np.array([instant(died[page]) if died and page in died else 0 for page in range(pages)]),
        hash=np.arange(pages, dtype=np.uint64),
        dir=np.array(dirs or [0] * pages),
        page=np.array([page for page, *_ in changes], dtype=np.int64),
        time=np.array([instant(day) for _, day, *_ in changes], dtype=np.int64),
        added=np.array([added for *_, added, _ in changes], dtype=np.int64),
        removed=np.array([removed for *_, removed in changes], dtype=np.int64),
        published=np.array([instant(day) for day in [*(published or []), days]]),
    )


def world(
    changes: list[list[float]], *, days: int = 100, sites: list[int] | None = None, arm: str = "none"
) -> World:
    """Return a world without signals whose pages change on these days, on one or several sites."""
    size = len(changes)
    site = np.array(sites or [0] * size)
    return World(
        arm=arm,
        sites=tuple(f"site{k}" for k in range(int(site.max()) + 1)),
        site=site,
        directory=site,
        born=np.zeros(size),
        died=np.full(size, np.inf),
        importance=np.ones(size),
        changes=[[day * DAY for day in times] for times in changes],
        signals=[Heard(np.zeros(0, dtype=np.int64), np.zeros(0)) for _ in range(days)],
        sources=("sitemap",) * (int(site.max()) + 1),
        days=days,
    )
