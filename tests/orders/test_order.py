"""Test that orders are found by name, including orders of installed packages, and that errors in orders are handled."""

import sys
from pathlib import Path

import msgspec
import pytest

from crawler.config import OrderConfig
from crawler.errors import ConfigError
from crawler.orders.classes import LEAST, NEUTRAL, score_of
from crawler.orders.naming import ranking
from crawler.orders.order import FoundLink, FoundOn

LINK, PAGE = FoundLink("https://a.org/x", "a word", 3), FoundOn("https://a.org/", 0.5, 2, "Title", 4)
PACKAGE = """
class Short:
    reads_anchors = True
    def __init__(self, config):
        self.decay = config.depth_decay
    def score(self, link, context):
        return {"short": self.decay, "x": 7.0, "nan": float("nan"), "": -1.0, "text": "0.5"}[link.anchor]
class Debt(Short):
    adds, base = True, -1.0
class Words(Short):
    counts_from = "a half"
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a package that offers orders and return its name."""
    (tmp_path / "ranking_of_ours.py").write_text(PACKAGE)
    info = tmp_path / "ranking_of_ours-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: ranking-of-ours\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[crawler.orders]\nshort = ranking_of_ours:Short\nbroken = ranking_of_ours:Missing\n"
        "plain = ranking_of_ours:Short.score\ndebt = ranking_of_ours:Debt\nwords-of-ours = ranking_of_ours:Words\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    yield "short"
    sys.modules.pop("ranking_of_ours", None)


def test_an_installed_package_provides_an_order(installed: str) -> None:
    """Scores are clamped.

    If an order raises an exception, or returns NaN or a text, this is reported, and the link has no score.
    """
    told: list[str] = []
    order = ranking(
        OrderConfig(name="short", depth_decay=0.25), lambda error, url: told.append(type(error).__name__)
    )
    assert order is not None and order.reads_anchors and not order.adds
    scores = [order.score(FoundLink(LINK.url, anchor), PAGE) for anchor in ("short", "x", "")]
    assert scores == [0.25, 1.0, LEAST]
    for anchor in ("nan", "other", "text"):
        assert order.score(FoundLink(LINK.url, anchor), PAGE) == score_of(NEUTRAL)
    assert told == ["ValueError", "KeyError", "TypeError"]


@pytest.mark.parametrize("name", ["missing", "broken", "plain", "debt", "words-of-ours"])
def test_an_unusable_order_name_is_a_config_error(installed: str, name: str) -> None:
    with pytest.raises(ConfigError, match=f"order.name:? .*{name}"):
        ranking(OrderConfig(name=name))


def test_the_error_for_an_unknown_order_lists_the_installed_orders(installed: str) -> None:
    with pytest.raises(
        ConfigError, match="is not one of breadth-first, .*, broken, debt, plain, short, words-of-ours or"
    ):
        ranking(OrderConfig(name="missing"))


def test_breadth_first_scores_nothing() -> None:
    assert ranking(OrderConfig()) is None


def test_depth_scores_fall_by_a_constant_factor_per_hop() -> None:
    order = ranking(OrderConfig(name="depth", depth_decay=0.3))
    assert order is not None and order.score(LINK, PAGE) == pytest.approx(0.027)


def test_a_link_brings_the_root_of_its_part_of_the_cash_of_a_page() -> None:
    order = ranking(OrderConfig(name="opic"))
    assert (
        order is not None and order.adds and order.base == 2.0**-16 and order.counts_from == 1.5 * order.base
    )
    assert order.score(LINK, PAGE) == pytest.approx((order.base * PAGE.score / PAGE.links) ** 0.5)
    rich = msgspec.structs.replace(PAGE, score=4 * PAGE.score)
    assert order.score(LINK, rich) == pytest.approx(2 * order.score(LINK, PAGE))
    assert order.score(LINK, FoundOn(kind="seed")) == LEAST


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    return tmp_path / "weights"


def test_words_are_weighed_once_per_field(weights: Path) -> None:
    weights.write_text(
        "bias -1\n word 2  # anywhere\nurl:a 0.5\nanchor:a 1\ntitle:title -3\nparent:score 0.25\n"
    )
    order = ranking(OrderConfig(name="words", file=str(weights)))
    assert order is not None and order.reads_anchors

    def odds(link: FoundLink, page: FoundOn) -> float:
        score = order.score(link, page)
        return score / (1 - score)

    assert odds(FoundLink("https://b.org/", ""), FoundOn()) == pytest.approx(2.718281828**-1)
    link = FoundLink("https://a.org/Word", "A word: word", 1)
    assert odds(link, FoundOn(title="no Title", score=0.0625)) == pytest.approx(
        2.718281828 ** (-1 + 2 + 2 + 0.5 + 1 - 3) * 0.0625**0.25, rel=1e-6
    )


@pytest.mark.parametrize("text", ["word", "word x", "word inf", "body:word 1", "word nan", "a" * 99 + " 1"])
def test_an_invalid_line_of_weights_is_reported_with_its_number(weights: Path, text: str) -> None:
    weights.write_text(f"# first\n{text}\n")
    with pytest.raises(ConfigError, match="line 2"):
        ranking(OrderConfig(name="words", file=str(weights)))


def test_words_need_a_file() -> None:
    for file in ("", "/no/such/file"):
        with pytest.raises(ConfigError, match="order.file"):
            ranking(OrderConfig(name="words", file=file))
