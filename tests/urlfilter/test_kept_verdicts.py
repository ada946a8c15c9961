"""Test that the verdicts of a URL filter are kept for the next run if a page was not finished."""

import pytest

from crawler.storage.keys import VERDICTS
from crawler.storage.kv import MemoryStore
from crawler.urlfilter import kept_verdicts
from crawler.urlfilter.kept_verdicts import KeptVerdicts

URLS = [f"http://a.org/{n}" for n in range(6)]


class Run:
    """A run that judges URLs in the context of a page, and is cut after the last of them if `is_cut`."""

    def __init__(self, store: MemoryStore, urls: list[str], *, is_cut: bool) -> None:
        self.asked: list[str] = []
        self.kept = KeptVerdicts(self._filter, store)
        with pytest.raises(GeneratorExit), self.kept.of_page():
            self.verdicts = [self.kept(url) for url in urls]
            raise GeneratorExit
        self.kept.is_cut = is_cut
        store.write(self.kept.change())

    def _filter(self, url: str) -> bool:
        self.asked.append(url)
        return url != URLS[1]


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
