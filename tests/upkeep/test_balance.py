"""Test that the corrected counters of messages to peers agree with the outbox."""

from collections import Counter
from itertools import product

from crawler.process.committing.counters import broken_laws
from crawler.records import DueCounts, FrontierCounts, SplitterCounts
from crawler.upkeep.check import corrections


def test_corrected_counters_agree_with_the_outbox_and_are_not_negative() -> None:
    """Notices that the outbox has lost are no longer counted."""
    for sent, waiting, scope, signals, links in product((0, 3), (0, 2), (0, 1, 4), (0, 1), (0, 2, 9)):
        counts = SplitterCounts(sent=sent, waiting=waiting, scope_told=scope, signals_told=signals)
        added = corrections(counts, links)
        told = {
            name: getattr(counts, name) + added.get(f"splitter.{name}", 0)
            for name in ("scope_told", "signals_told", "credits_told")
        }
        corrected = SplitterCounts(sent=sent, waiting=waiting, **told)
        to_outbox = links + added["urls.to_outbox"]
        counters = {"urls.accepted": links} | added | {"urls.to_outbox": to_outbox}
        assert broken_laws(counters, DueCounts(), FrontierCounts(), corrected) == []
        assert min(to_outbox, *told.values()) >= 0


def test_counters_that_agree_with_the_outbox_stay_unchanged() -> None:
    counts = SplitterCounts(sent=3, waiting=2, repeated=1, scope_told=1, credits_told=2)
    assert not +Counter(corrections(counts, 3))
