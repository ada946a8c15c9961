"""Level exchange between processes, and the share of the rate with discovery."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.freshness.params import PageParameters
from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings
from crawler.frontier.refresh.levels import LevelExchange, LevelReport, shares_of
from crawler.frontier.share import Share, Side

DAY = 86_400.0
reports = st.dictionaries(
    st.sampled_from("abcd"),
    st.builds(LevelReport, st.floats(1e-6, 1e6), st.floats(0.01, 0.4), st.booleans()),
    min_size=1,
)


@given(reports, st.floats(0.0, 0.05))
def test_shares_sum_to_one_and_move_towards_higher_levels(told: dict[str, LevelReport], step: float) -> None:
    shares = shares_of(told, step)
    assert sum(shares.values()) == pytest.approx(1.0)
    assert all(share > 0.0 for share in shares.values())
    busy = [name for name in told if told[name].busy]
    for one in busy:
        for other in busy:
            if told[one].level >= told[other].level:
                gained = [shares[name] / max(told[name].share, 1e-3) for name in (one, other)]
                assert gained[0] >= gained[1] * (1.0 - 1e-6)


def test_reports_that_cannot_be_right_change_nothing() -> None:
    exchange = LevelExchange("a", 0.5)
    mine = exchange.report(2.0, True, 0.0, 1.0)
    for bad in (
        LevelReport(float("nan"), 0.5),
        LevelReport(1.0, float("inf")),
        LevelReport(-1.0, 0.5),
        LevelReport(1.0, 0.0),
    ):
        assert exchange.renew({"a": mine, "b": bad}, 1.0, 10.0) == 0.5
    with pytest.raises(UsageError):
        LevelExchange("a", float("nan"))


@pytest.mark.parametrize("sizes", [(150, 600), (80, 160, 240, 480)])
def test_processes_with_unequal_hosts_find_one_level(sizes: tuple[int, ...]) -> None:
    """On a virtual clock, from equal shares: pages and change rates differ up to sixfold between processes."""
    rng = np.random.default_rng(5)
    total = sum(sizes) / (5 * DAY)
    processes, exchanges, dues = [], [], []
    for number, size in enumerate(sizes):
        schedule = Schedule(Settings(neighbourhood=False, pooling=False, explore=0.0), level=1e6)
        rates = rng.gamma(1.0, 1.0, size) * (0.05 + 0.1 * number) / DAY + 1e-9
        for page in range(size):
            host = page % (3 + number)
            schedule.add(page + 1, host, host, -rng.random() * 5 * DAY, 0.0)
            schedule.set_page(page, PageParameters(1.0, float(rates[page])), 0.0)
        processes.append(schedule)
        exchanges.append(LevelExchange(str(number), 1 / len(sizes)))
        dues.append(0.0)
    revisit, every, now, logs = 5 * DAY, DAY / 8, 0.0, []
    while now < 150 * DAY:
        now += every
        told = {}
        for number, (schedule, exchange) in enumerate(zip(processes, exchanges, strict=True)):
            schedule.rate = total * exchange.share
            while dues[number] <= now:
                page = schedule.take(dues[number])
                if page >= 0:
                    schedule.settle(page, dues[number], RefreshOutcome.CHANGED, dues[number] + 60.0)
                dues[number] += 1.0 / schedule.rate
            told[str(number)] = exchange.report(schedule.price(now), True, now, revisit)
        for exchange in exchanges:
            exchange.renew(told, every, revisit)
        assert sum(exchange.share for exchange in exchanges) == pytest.approx(1.0)
        if now > 100 * DAY:
            logs.append([report.level for report in told.values()])
    levels = np.mean(logs, axis=0)
    assert levels.max() / levels.min() < 1.05, levels
    assert max(exchange.share for exchange in exchanges) > 1.3 / len(sizes)


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


def test_a_share_is_a_share() -> None:
    for wrong in (-0.1, 1.1, float("nan")):
        with pytest.raises(UsageError):
            Share(wrong)
