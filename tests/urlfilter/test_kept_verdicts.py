"""Test that the verdicts of a URL filter are kept for the next run if a page was not finished."""

import msgspec
import pytest

from crawler.storage.keys import VERDICTS
from crawler.storage.kv import MemoryStore, seal
from crawler.urlfilter import kept_verdicts
from crawler.urlfilter.kept_verdicts import KeptVerdicts

URLS = [f"http://a.org/{n}" for n in range(6)]


class Run:
    """A run that judges URLs in the context of a page, and is cut after the last of them if `is_cut`.

    `refused` is a setting of its filter.
    """

    def __init__(self, store: MemoryStore, urls: list[str], *, is_cut: bool, refused: str = URLS[1]) -> None:
        asked = self.asked = list[str]()

        def judge(url: str) -> bool:
            asked.append(url)
            return url != refused

        self.kept = KeptVerdicts(judge, store)
        with pytest.raises(GeneratorExit), self.kept.of_page():
            self.verdicts = [self.kept(url) for url in urls]
            raise GeneratorExit
        self.kept.is_cut = is_cut
        store.write(self.kept.change())


def test_the_next_run_asks_only_for_other_urls() -> None:
    """Each stored verdict is used once, and is stored again if the run is cut, too."""
    store = MemoryStore()
    assert Run(store, URLS[:3], is_cut=True).verdicts == [True, False, True]
    assert Run(store, URLS[:4], is_cut=True).asked == [URLS[3]]
    last = Run(store, URLS[:5] + URLS[:1], is_cut=False)
    assert last.asked == [URLS[4], URLS[0]] and last.verdicts == [True, False, True, True, True, True]
    assert store.get(VERDICTS) is None and Run(store, URLS, is_cut=False).asked == URLS


def test_only_a_page_that_is_left_early_is_cut() -> None:
    kept = KeptVerdicts(lambda url: True, MemoryStore())
    with kept.of_page():
        kept(URLS[0])
    assert not kept.is_cut and repr(kept) == "KeptVerdicts(0 from the last run, 1 of this run)"
    with pytest.raises(KeyboardInterrupt), kept.of_page():
        raise KeyboardInterrupt
    assert kept.is_cut


def test_the_number_of_verdicts_has_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_verdicts, "VERDICTS_MAX", 2)
    store = MemoryStore()
    Run(store, URLS[:4], is_cut=True)
    assert Run(store, URLS[:4], is_cut=True).asked == URLS[:2], "the oldest are dropped"


def test_verdicts_of_another_filter_are_not_used() -> None:
    """Verdicts were once used although the filter had changed."""
    store = MemoryStore()
    Run(store, URLS[:3], is_cut=True)
    other = Run(store, URLS[:3], is_cut=True, refused=URLS[2])
    assert other.asked == URLS[:3] and other.verdicts == [True, True, False]
    batch = store.batch(sync=True)
    batch.put(VERDICTS, seal(msgspec.msgpack.encode({URLS[0]: False})))
    store.write(batch)
    assert Run(store, URLS[:1], is_cut=True).verdicts == [True], "the stored verdicts have no fingerprint"


def test_verdicts_stored_during_a_run_outlast_a_kill() -> None:
    """The verdicts of an earlier run that were not used yet are stored again."""
    store = MemoryStore()
    Run(store, URLS[:3], is_cut=True)
    killed = Run(store, URLS[3:5], is_cut=True).kept
    killed(URLS[5])
    store.write(killed.so_far())
    assert Run(store, URLS, is_cut=False).asked == []
