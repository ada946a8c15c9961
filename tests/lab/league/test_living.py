"""Test the living league: the times at which hubs list new pages, the cost of discovery, scores, and credits."""

import functools
from typing import Any

import msgspec
import numpy as np
import pytest

from crawler.errors import UsageError
from crawler.frontier.refresh.page_facts import SITE_LIST_LINKS
from crawler.lab.league import histories, living, living_table, scores
from crawler.lab.league import world as worlds
from crawler.lab.league.finders import FINDERS, FREE, Crediting, NewFirst
from crawler.lab.league.living import NEWEST, RULES, LivingWorld, grow, play
from crawler.lab.league.world import DAY
from tests.lab.league.made import EXCERPT, world

YEAR = 365


def living_world(
    rule: str,
    changes: list[list[float]],
    *,
    born: dict[int, float] | None = None,
    died: dict[int, float] | None = None,
    directory: list[int] | None = None,
) -> LivingWorld:
    """Return a world of one site. `births` and `deaths` are the days on which each page is born and dies."""
    base = world(changes, days=YEAR)
    days = np.arange(len(base))
    return grow(
        msgspec.structs.replace(
            base,
            born=np.array([(born or {}).get(page, 0.0) for page in days]) * DAY,
            died=np.array([(died or {}).get(page, np.inf) for page in days]) * DAY,
            directory=np.array(directory or [0] * len(base)),
        ),
        rule,
    )


class Scripted:
    """A policy that fetches a fixed list of nodes, and records the calls of its methods."""

    def __init__(self, nodes: list[int]) -> None:
        self.nodes, self.told = nodes[::-1], list[tuple[Any, ...]]()

    def claim_next(self, now: float) -> int:
        return self.nodes.pop() if self.nodes else -1

    def __getattr__(self, name: str) -> Any:
        def note(*args: Any) -> None:
            # the position of `now` in the arguments of each method
            place = 1 if name == "record_outcome" else len(args) - 1
            self.told.append(
                (name, *(round(arg / DAY, 1) if k == place else arg for k, arg in enumerate(args)))
            )

        return note

    def of(self, name: str) -> list[tuple[Any, ...]]:
        return [tuple(rest) for what, *rest in self.told if what == name]


RATE = 1.0 / DAY  # one fetch per day, at noon


def scripted(found: LivingWorld, *nodes: int) -> Scripted:
    """Fetch the nodes; return the policy that has recorded the calls."""
    policy = Scripted(list(nodes))
    play(found, policy, RATE)  # type: ignore[arg-type]
    return policy


def test_a_page_becomes_known_when_its_listing_is_fetched() -> None:
    """Page 1 is born on day 3 in the directory of page 0. Node 2 lists the pages, and node 3 lists the directory."""
    found = living_world("dir", [[], []], born={1: 3.0})
    assert (found.pages, len(found)) == (2, 4)
    assert found.changes[2] == [3 * DAY] and found.changes[3] == []
    policy = Scripted([2, 0, 0, 0, 2, 1, 2])
    result = play(found, policy, RATE)  # type: ignore[arg-type]
    assert policy.of("find") == [(1, 4.5)]
    assert policy.of("add") == [(0, 0.0), (2, 0.0), (3, 0.0), (1, 5.5)]
    assert policy.of("record_outcome") == [
        (2, 0.5, False), (0, 1.5, False), (0, 2.5, False), (0, 3.5, False), (2, 4.5, True), (2, 6.5, False),
    ]  # fmt: skip
    assert policy.of("credit") == [(2, 1.0, 5.5)]
    assert result.fetches == 7 and result.hub_fetches == 3 and result.new_fetches == 1


def test_a_new_directory_is_found_by_the_root_which_gets_the_credit() -> None:
    """A listing gets credit for pages that appear in later copies, but not for pages in its first copy."""
    found = living_world("dir", [[], [], []], born={1: 3.0, 2: 9.0}, directory=[0, 1, 1])
    listing, root = 4, 5
    assert found.born[listing] == 3 * DAY and found.changes[root] == [3 * DAY]
    policy = scripted(found, 0, 0, 0, root, listing, 1, 0, 0, 0, listing, 2)
    assert policy.of("find") == [(listing, 3.5), (1, 4.5), (2, 9.5)]
    assert policy.of("credit") == [(root, 1.0, 4.5), (listing, 1.0, 10.5)]


def test_news_are_expected_of_a_list_of_a_whole_site_even_if_it_is_empty() -> None:
    """A map or a root is expected to show more links than its first copy has. A listing is not."""
    for rule, told in (
        ("map", [(2, SITE_LIST_LINKS, 0.0)]),
        ("dir", [(3, SITE_LIST_LINKS, 0.0), (2, 1, 2.5)]),
    ):
        found = living_world(rule, [[], []], born={0: 1.0, 1: 9.0})
        assert scripted(found, *([3, 3, 2] if rule == "dir" else [])).of("expect") == told, rule


def test_a_page_that_is_gone_when_fetched_scores_nothing() -> None:
    found = living_world("map", [[], []], born={1: 1.0}, died={1: 4.0})
    policy = scripted(found, 0, 2, 0, 0, 0, 1)
    assert policy.of("find") == [(1, 1.5)]
    assert policy.of("credit") == [(2, 0.0, 5.5)]
    late = scripted(found, 0, 0, 0, 0, 2)  # the page was born and died between two fetches
    assert late.of("find") == []


def test_a_front_page_shows_only_the_newest_pages() -> None:
    """After 5 old pages, 25 pages are born at the same time.

    One fetch of the front page shows 20 of them, and the listing shows all of them.
    """
    born = {page: 1.0 + page / 100 for page in range(5, 30)}
    found = living_world("newest", [[]] * 30, born=born)
    listing, front = 30, 31
    policy = scripted(found, 0, front, listing)
    found_at = policy.of("find")
    assert [page for page, at in found_at if at == 1.5] == list(range(10, 30))
    assert [page for page, at in found_at if at == 2.5] == list(range(5, 10))
    assert len(found_at) == 20 + 5 and NEWEST == 20


def test_hubs_change_when_their_listed_pages_do() -> None:
    """Page 0 dies when 20 newer pages exist.

    The listing of page 0 changes, but the front page does not, because it no longer lists page 0.
    """
    born = {page: float(page) for page in range(1, 22)}
    found = living_world("newest", [[]] * 22, born=born, died={0: 50.0, 21: 60.0})
    listing, front = found.changes[22], found.changes[23]
    births = [day * DAY for day in range(1, 22)]
    assert listing == [*births, 50 * DAY, 60 * DAY]
    assert front == [*births, 60 * DAY]


def test_the_score_equals_a_scan_of_all_fetches() -> None:
    """For comparison, every fetch is recorded, and each hour of the year is examined separately."""
    base = worlds.build(histories.read_folder(EXCERPT), "none", pages=6, days=YEAR)
    found = grow(base, "dir")
    policy = FINDERS["round-robin"](found, 8 * found.change_rate)
    asked: list[list[float]] = [[0.0] if at <= 0.0 else [] for at in found.born]
    for name in ("add", "record_outcome"):
        plain = getattr(policy, name)

        def note(node: int, now: float, *more: Any, plain: Any = plain) -> None:
            asked[node].append(now)
            plain(node, now, *more)

        setattr(policy, name, note)
    result = play(found, policy, 8 * found.change_rate)
    grid = np.arange(0.2 * found.horizon, found.horizon, 3600.0)
    current = there = 0.0
    for page in range(found.pages):
        alive = (grid >= found.born[page]) & (grid < found.died[page])
        there += alive.sum()
        fetches = np.array(sorted(asked[page]))
        if not len(fetches):
            continue
        place = np.searchsorted(fetches, grid, side="right")
        copies = fetches[np.maximum(place - 1, 0)]
        changed = np.searchsorted(found.changes[page], grid, side="right") > np.searchsorted(
            found.changes[page], copies, side="right"
        )
        current += (alive & (place > 0) & ~changed).sum()
    mine, whole = result.by_site(found)
    assert whole.sum() == pytest.approx(there * 3600.0, rel=2e-3)
    assert mine.sum() / whole.sum() == pytest.approx(current / there, abs=2e-3)


@functools.cache
def excerpt(rule: str) -> LivingWorld:
    return grow(worlds.build(histories.read_folder(EXCERPT), "none", pages=10, days=500), rule)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", FINDERS)
def test_every_finder_can_play(name: str, rule: str) -> None:
    found = excerpt(rule)
    rate = 3.0 * found.change_rate
    result = play(found, FINDERS[name](found, rate), rate, told=name in FREE)
    assert result.fetches + result.idle == int(rate * found.horizon)
    assert result.idle <= 0.05 * result.fetches
    current, there = result.by_site(found)
    assert ((current >= 0.0) & (current <= there)).all()
    assert len(result.delays) <= result.born and (result.delays >= 0.0).all()
    assert (result.hub_fetches == 0) == (name in FREE)


def test_valued_hubs_show_births_sooner_but_not_sooner_than_announced_births() -> None:
    base = worlds.build(histories.read_folder(EXCERPT), "none", pages=40)
    found = grow(base, "map")
    rate = 3.0 * found.change_rate
    came = {
        name: play(found, FINDERS[name](found, rate), rate, told=name in FREE)
        for name in ("proto-0", "proto-1", "proto-10", "proto-free")
    }
    delays = {name: float(result.delays.mean()) for name, result in came.items()}
    assert delays["proto-free"] < DAY < delays["proto-10"] < delays["proto-1"] < delays["proto-0"]
    assert came["proto-10"].hubs_fresh > came["proto-0"].hubs_fresh
    rows = living_table.rows_of(
        [(scores.game_of("map", name, 3.0, found, result), result) for name, result in came.items()]
    )
    assert rows[0].difference == 0.0 and rows[-1].score == max(row.score for row in rows)
    assert living_table.table(rows).count("\n") == len(rows)


def test_new_urls_get_their_share_of_the_fetches() -> None:
    """With a share of a tenth, 5 new URLs are fetched within 50 fetches.

    With a share of 1, they are fetched first.
    """
    base = living_world("map", [[], []])
    for share, places in ((1.0, [0, 1, 2, 3, 4]), (0.1, [9, 19, 29, 39, 49])):
        policy = NewFirst(Scripted([0] * 60), share)  # type: ignore[arg-type]
        for node in range(100, 105):
            policy.find(node, 0.0)
        taken = [policy.claim_next(float(k)) for k in range(55)]
        assert [place for place, node in enumerate(taken) if node >= 100] == places
    assert len(base) == 3


def test_the_schedule_is_notified_of_new_pages_if_it_supports_it() -> None:
    class Showing:
        def __init__(self) -> None:
            self.facts, self.shown = self, list[tuple[int, float, float]]()

        def credit_hub(self, page: int, found: float, now: float) -> None:
            self.shown.append((page, found, now))

    found = living_world("map", [[], []])
    finder = FINDERS["ncis"](found, RATE)
    assert isinstance(finder, NewFirst) and isinstance(finder.policy, Crediting)
    finder.add(2, 0.0)
    finder.credit(2, 1.0, 5.0)  # a schedule without hubs is not notified
    finder.policy.schedule = Showing()  # type: ignore[assignment]
    finder.credit(2, 1.0, 7.0)
    finder.credit(1, 1.0, 7.0)  # this page is not in the schedule
    assert finder.policy.schedule.shown == [(0, 1.0, 7.0)]  # type: ignore[attr-defined]


def test_an_unknown_rule_is_rejected() -> None:
    with pytest.raises(UsageError, match="dir, map, newest"):
        living_world("tags", [[]])


def test_a_news_site_needs_fetches_of_its_hubs() -> None:
    """If discovery has a tenth of the fetches, most articles are never fetched.

    If hubs have a value of their own, nearly all articles are fetched within days.
    """
    found = living.news(1)
    assert len(found.hubs) == living.SECTIONS and not found.born[found.pages :].any()
    rate = found.change_rate
    tenth, valued = (play(found, FINDERS[name](found, rate), rate) for name in ("ncis-tenth", "proto-1"))
    assert len(tenth.delays) < 0.5 * tenth.born and np.median(tenth.delays) > 30 * DAY
    assert len(valued.delays) > 0.9 * valued.born and np.median(valued.delays) < 6 * DAY
