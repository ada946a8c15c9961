"""Test the exchange of levels between processes, and the division of the rate between discovery and refresh."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import RefreshConfig
from crawler.errors import UsageError
from crawler.freshness.params import PageParameters
from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings
from crawler.frontier.refresh.importance import Importance
from crawler.frontier.refresh.portion import Portion
from crawler.frontier.refresh.rate_balancing import Balance, LevelReport, portions
from crawler.frontier.refresh.site_clock import SiteClock
from crawler.frontier.share import Share, Side
from crawler.splitter.coordination import Coordination, Progress

DAY = 86_400.0
reports = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(LevelReport, st.floats(1e-6, 1e6), st.floats(1.0, 1e6), st.booleans()),
    min_size=1,
)


@given(reports)
def test_weights_move_towards_higher_levels(told: dict[str, LevelReport]) -> None:
    tilts = {}
    for name in told:
        balance = Balance(name)
        tilts[name] = balance.renew(told, 1.0, 10.0)
        assert 0.9 < tilts[name] < 1.11
    busy = [name for name in told if told[name].busy]
    for one in busy:
        assert all(
            tilts[one] >= tilts[other] - 1e-12 for other in busy if told[one].level >= told[other].level
        )
    if len(told) > 1:
        assert all(tilts[name] < 1.0 for name in told if not told[name].busy)


def test_invalid_reports_are_ignored() -> None:
    balance = Balance("a")
    mine = balance.report(2.0, 10, True, 0.0, 1.0)
    assert mine == LevelReport(2.0, 10.0, True)
    for bad in (
        LevelReport(float("nan"), 5.0),
        LevelReport(1.0, float("inf")),
        LevelReport(-1.0, 5.0),
        LevelReport(1.0, 0.0),
    ):
        assert balance.renew({"a": mine, "b": bad}, 1.0, 10.0) == 1.0
    assert Balance("a", float("nan")).tilt == 1.0
    assert (
        balance.report(0.0, 10, True, 1.0, 1.0).weight == balance.report(1.0, 0, True, 1.0, 1.0).weight == 0.0
    )


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_portions_of_all_sum_to_the_rate(share: float, new: float, known: float) -> None:
    """Without work for discovery, refresh gets the whole rate; without known pages, discovery gets the whole rate."""
    for work in (False, True):
        for pages in (False, True):
            total = 0.0
            for mine, own in ((new, known), (1.0 - new, 1.0 - known)):
                parts = portions(mine if work else 0.0, own if pages else 0.0, share, work=work, pages=pages)
                total += sum(parts)
            assert total == pytest.approx(1.0 if work or pages else 0.0)


def test_new_pages_get_their_share_back_after_they_had_run_out() -> None:
    """The share of the crawl was once overwritten with that of one process. From then on, no new page was fetched."""
    config = RefreshConfig(share=0.3)
    portion = Portion(Schedule(Settings()), SiteClock(1.0), config, Importance(config), rate=1.0, name="p0")
    for work in (True, False, True):
        discovery, known = portions(0.5 * work, 0.5, portion.share.of_crawl, work=work, pages=True)
        portion.divide(discovery, known, 1.0)
    assert (discovery, known) == pytest.approx((0.35, 0.15))
    portion.share.set(0.6)
    assert portion.share.of_crawl == 0.6


class Player:
    """One process of a crawl on a virtual clock. It knows the change rates of its pages and the reports of its peers."""

    def __init__(self, name: str, names: list[str], pages: list[tuple[int, int, float, float]]) -> None:
        self.schedule = Schedule(Settings(neighbourhood=False, pooling=False, explore=0.0), level=1e6)
        self.balance = Balance(name)
        self.rates = []
        for key, host, rate, crawled in pages:
            page = self.schedule.add(key, host, host, crawled, 0.0)
            self.schedule.facts.set_page(page, PageParameters(1.0, rate), 0.0)
            self.rates.append(rate)
        self.crawled = [crawled for *_, crawled in pages]
        self.said = Progress()
        self.view = Coordination(name, names, name.encode(), lambda: self.said)
        self.due, self.fresh = 0.0, 0.0

    def run(self, rate: float, now: float, judged_from: float) -> None:
        """Fetch pages at `rate` until `now`, and add up the expected time for which the pages' copies were fresh."""
        self.schedule.pace.rate = rate
        while self.due <= now:
            page = self.schedule.claim_next(self.due)
            if page >= 0:
                self.schedule.record_outcome(page, self.due, RefreshOutcome.CHANGED, self.due + 60.0)
                self.judge(page, self.due, judged_from)
                self.crawled[page] = self.due
            self.due += 1.0 / rate

    def judge(self, page: int, end: float, judged_from: float) -> None:
        """Add the expected time for which the copy of a page was current: the integral of exp(-rate age)."""
        rate, begin = self.rates[page], max(self.crawled[page], judged_from)
        if end > begin:
            ages = begin - self.crawled[page], end - self.crawled[page]
            self.fresh += (np.exp(-rate * ages[0]) - np.exp(-rate * ages[1])) / rate

    def finish(self, now: float, judged_from: float) -> float:
        for page in range(len(self.rates)):
            self.judge(page, now, judged_from)
        return self.fresh


def play(
    parts: list[list[tuple[int, int, float, float]]], rate: float
) -> tuple[float, np.ndarray, list[float]]:
    """Return the freshness, the mean level of each process, and the final shares.

    The other processes receive the report of a process one exchange later.
    """
    names = [str(number) for number in range(len(parts))]
    players = [Player(name, names, pages) for name, pages in zip(names, parts, strict=True)]
    revisit, every, end, judged_from = 5 * DAY, DAY / 8, 150 * DAY, 100 * DAY
    now, levels, on_the_way = 0.0, [], []
    while now < end:
        now += every
        for one, other, counters in on_the_way:
            other.view.record_counters(one, counters, now)
        shares = [player.view.refresh_share() for player in players]
        assert sum(shares) <= 1.0 + 1e-9
        for player, share in zip(players, shares, strict=True):
            if share:
                player.run(rate * share, now, judged_from)
            own = player.balance.report(
                player.schedule.marginal_value(now), len(player.rates), True, now, revisit
            )
            told = {
                name: LevelReport(each.level, each.weight, each.busy)
                for name, each in player.view.rates_stated().items()
            }
            player.balance.renew(told | {player.balance.name: own}, every, revisit)
            player.said = Progress(level=own.level, weight=own.weight, busy=own.busy)
        on_the_way = [
            (one.balance.name, other, one.view.counters_for(other.balance.name))
            for one in players
            for other in players
            if one is not other
        ]
        if now > judged_from:
            levels.append([player.said.level for player in players])
    fresh = sum(player.finish(now, judged_from) for player in players)
    return fresh / (sum(map(len, parts)) * (now - judged_from)), np.mean(levels, axis=0), shares


@pytest.mark.parametrize("sizes", [(150, 600), (80, 160, 240, 480)])
def test_processes_with_unequal_hosts_find_one_level(sizes: tuple[int, ...]) -> None:
    """The processes have different numbers of pages and different change rates.

    The levels of the processes agree within 5 %, and their copies are as fresh as those of a single process
    would be.
    """
    rng = np.random.default_rng(5)
    parts, key = [], 0
    for number, size in enumerate(sizes):
        rates = rng.gamma(1.0, 1.0, size) * (0.05 + 0.1 * number) / DAY + 1e-9
        ages = rng.random(size) * 5 * DAY
        parts.append([])
        for page in range(size):
            key += 1
            host = 100 * number + page % (3 + number)
            parts[-1].append((key, host, float(rates[page]), -float(ages[page])))
    rate = sum(sizes) / (5 * DAY)
    alone, _, _ = play([[page for part in parts for page in part]], rate)
    together, levels, shares = play(parts, rate)
    assert levels.max() / levels.min() < 1.05, levels
    assert together == pytest.approx(alone, abs=0.005)
    assert shares[-1] > 1.05 * sizes[-1] / sum(sizes), "the rate moves to pages that change more"


@given(st.floats(0.0, 1.0), st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_a_share_is_kept_while_both_have_work_and_no_claim_outlasts_a_pause(
    refresh: float, history: list[tuple[bool, bool]]
) -> None:
    share, contended, taken = Share(refresh), 0, 0
    for discovery, has_refresh in history:
        side = share.first(discovery=discovery, refresh=has_refresh)
        assert side is share.first(discovery=discovery, refresh=has_refresh)
        if side is None:
            assert not discovery and not has_refresh
            continue
        assert (discovery, has_refresh)[side is Side.REFRESH]
        both = discovery and has_refresh
        contended += both
        taken += both and side is Side.REFRESH
        share.spend(side, contended=both)
        assert abs(taken - refresh * contended) <= 1.5


def test_the_share_must_be_between_0_and_1() -> None:
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError):
            Share(wrong)
