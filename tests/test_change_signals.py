"""Test the table of signal sources, and the counts of what happened to signals."""

from pathlib import Path

import msgspec
import pytest

from crawler.change_signals import (
    COUNTER_BITS,
    NAMES,
    SIGNAL_SOURCES,
    SOURCES,
    TOLD_MAX,
    Fate,
    Signalled,
    Told,
    source_number,
)
from crawler.freshness.signal_quality import SignalQuality

ROOT = Path(__file__).resolve().parent.parent


def test_the_numbers_are_those_that_are_stored() -> None:
    """The stored numbers are sitemap 0, feed 1, indexnow 2, websub 3, signal 4, headers 5, listing 6, other 7."""
    stored = ("sitemap", "feed", "indexnow", "websub", "signal", "headers", "listing", "other")
    assert stored == NAMES and [source.number for source in SIGNAL_SOURCES] == list(range(8))


def test_the_kernels_agree_with_the_table() -> None:
    assert SOURCES * COUNTER_BITS == 32, "the counters of a page fit into one word"
    quality = SignalQuality()
    for source in SIGNAL_SOURCES:
        assert quality.sources.honesty.share(source.number) == pytest.approx(0.7)


@pytest.mark.parametrize("name", NAMES)
def test_a_sender_after_the_name_of_a_source_is_ignored(name: str) -> None:
    assert source_number(name) == source_number(f"{name}:who:ever") == NAMES.index(name)


@pytest.mark.parametrize("name", ["", "nobody", "Signal", "sitemaps", ":signal"])
def test_any_other_source_is_other(name: str) -> None:
    assert source_number(name) == NAMES.index("other") == SOURCES - 1


def test_the_page_of_the_frontier_shows_the_table() -> None:
    text = (ROOT / "crawler" / "frontier" / "README.md").read_text()
    for source in SIGNAL_SOURCES:
        assert f"| {source.number} | `{source.name}` | {source.recipe} |" in text


def test_fates_are_counted_and_the_first_are_listed_with_their_urls() -> None:
    said = Signalled()
    for n in range(TOLD_MAX + 5):
        fate, *why = (Fate.OUT_OF_SCOPE, "scope", "it is too far") if n % 2 else (Fate.NOTED,)
        said.record(f"http://x/{n}", fate, *why)
    said.refuse("too_many", 7, "too many signals")
    assert said.counts() == {
        "noted": 53, "kept": 0, "queued": 0, "sent": 0, "not_refreshed": 0, "retired": 0, "out_of_scope": 52,
        "refused": 7,
    }  # fmt: skip
    assert said.why == {"scope": 52, "too_many": 7} and len(said.urls) == TOLD_MAX == 100
    assert said.urls[:2] == [Told("http://x/0", Fate.NOTED), Told("http://x/1", Fate.OUT_OF_SCOPE, "scope")]
    assert msgspec.json.encode(said.urls[:2]) == (
        b'[{"url":"http://x/0","fate":"noted"},{"url":"http://x/1","fate":"out_of_scope","why":"scope"}]'
    )
    assert said.reasons == {"scope": "it is too far", "too_many": "too many signals"}
    words = "53 noted, 52 out of scope, 7 refused\n  it is too far: 52\n  too many signals: 7"
    assert said.plain() == {**msgspec.json.decode(msgspec.json.encode(said)), "said": words}


def test_results_in_words() -> None:
    assert Signalled(noted=1200).in_words() == "1,200 noted"
    assert Signalled(kept=3, not_refreshed=1, queued=2, sent=4).in_words() == (
        "0 noted, 3 kept for the next run that refreshes pages, 2 queued (not fetched yet), "
        "4 sent to their processes, 1 known, but not kept fresh"
    )


def test_the_owner_of_a_sent_signal_is_not_counted_as_a_reason() -> None:
    """The field `why` counts the reasons for refusals.

    If a signal was sent to another owner, this owner is recorded only with the URL.
    """
    said = Signalled()
    said.record("http://x/", Fate.SENT, "p2")
    assert said.why == {} and said.urls[0].why == "p2" and said.sent == 1
    assert Signalled().why == {} and Signalled().urls == [], "each instance has its own containers"
