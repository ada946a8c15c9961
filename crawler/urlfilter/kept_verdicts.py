"""Keeps the verdicts of the user's URL filter on the links of a page that a run did not finish.

    page P: 1 .. 40 judged │ the run ends, P is left to the next run
                           └─► 40 verdicts stored ─► next run: P is fetched again, 1 .. 40 known, 41 .. judged

Without the stored verdicts, a filter that needs longer for the links of one page than a run lasts would begin with the
first link in each run. While a page is being judged, the verdicts are stored at intervals, so a kill costs only the
verdicts since the last interval. A stored verdict is used once, by the same filter (`filter_fingerprint.py`). If a run
ends without an unfinished page, all stored verdicts are dropped.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice

import msgspec

from crawler.storage.commit import Change
from crawler.storage.keys import VERDICTS
from crawler.storage.kv import KeyValue, seal, unseal
from crawler.urlfilter.filter_fingerprint import filter_fingerprint

# Maximum number of verdicts that are kept. In memory, there are at most twice as many, with about 200 bytes each.
VERDICTS_MAX = 100_000


class KeptVerdicts:
    """Calls the URL filter `hook` for URLs without a stored verdict; `is_cut` means that a page was not finished."""

    def __init__(self, hook: Callable[[str], bool], store: KeyValue) -> None:
        self._hook = hook
        self._fingerprint = filter_fingerprint(hook)
        self._known = _stored(store, self._fingerprint)
        self._recent: dict[str, bool] = {}
        self.is_cut = False

    def __call__(self, url: str) -> bool:
        verdict = self._known.pop(url, None)
        if verdict is None:
            verdict = bool(self._hook(url))
        self._recent[url] = verdict
        if len(self._recent) >= 2 * VERDICTS_MAX:
            self._recent = _newest(self._recent)
        return verdict

    @contextmanager
    def of_page(self) -> Iterator[None]:
        """Judge the links of a page in this context. If the context is left early, the page was not finished."""
        try:
            yield
        except BaseException:
            self.is_cut = True
            raise

    def change(self) -> Change:
        """Build the `Change` at the end of a run: store the verdicts if a page was not finished, or else delete them."""
        if self.is_cut:
            return self.so_far()
        change = Change()
        change.delete(VERDICTS)
        return change

    def so_far(self) -> Change:
        """Build the `Change` that stores the newest verdicts, among them those that are known and not used yet."""
        verdicts = _newest(self._known | self._recent)
        change = Change()
        change.put(VERDICTS, seal(msgspec.msgpack.encode((self._fingerprint, verdicts))))
        return change

    def __repr__(self) -> str:
        return f"KeptVerdicts({len(self._known)} from the last run, {len(self._recent)} of this run)"


def _newest(verdicts: dict[str, bool]) -> dict[str, bool]:
    """Return the last `VERDICTS_MAX` verdicts."""
    return dict(islice(verdicts.items(), max(0, len(verdicts) - VERDICTS_MAX), None))


def _stored(store: KeyValue, fingerprint: bytes) -> dict[str, bool]:
    """Return the stored verdicts of the filter with this fingerprint."""
    value = store.get(VERDICTS)
    if value is None:
        return {}
    try:
        of, verdicts = msgspec.msgpack.decode(unseal(VERDICTS, value), type=tuple[bytes, dict[str, bool]])
    except msgspec.ValidationError:  # the value has no fingerprint
        return {}
    return verdicts if of == fingerprint else {}
