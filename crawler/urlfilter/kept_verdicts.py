"""Keeps the verdicts of the user's URL filter on the links of a page that a run did not finish.

    page P: 1 .. 40 judged │ the run ends, P is left to the next run
                           └─► 40 verdicts stored ─► next run: P is fetched again, 1 .. 40 known, 41 .. judged

Without the stored verdicts, a filter that needs longer for the links of one page than a run lasts would begin with the
first link in each run. A stored verdict is used once, in the next run with a URL filter. If that run finishes the
page, the other stored verdicts are dropped.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from crawler.storage.commit import Change
from crawler.storage.keys import VERDICTS
from crawler.storage.kv import KeyValue, seal, unseal

VERDICTS_MAX = 100_000  # maximum number of verdicts that are kept, about 200 bytes each in memory


class KeptVerdicts:
    """Calls the URL filter `hook` for URLs without a stored verdict; `is_cut` means that a page was not finished."""

    def __init__(self, hook: Callable[[str], bool], store: KeyValue) -> None:
        self._hook = hook
        value = store.get(VERDICTS)
        self._known = (
            {} if value is None else msgspec.msgpack.decode(unseal(VERDICTS, value), type=dict[str, bool])
        )
        self._recent = OrderedDict[str, bool]()
        self.is_cut = False

    def __call__(self, url: str) -> bool:
        verdict = self._known.pop(url, None)
        if verdict is None:
            verdict = bool(self._hook(url))
        self._recent[url] = verdict
        if len(self._recent) > VERDICTS_MAX:
            self._recent.popitem(last=False)
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
        change = Change()
        if self.is_cut:
            change.put(VERDICTS, seal(msgspec.msgpack.encode(dict(self._recent))))
        else:
            change.delete(VERDICTS)
        return change

    def __repr__(self) -> str:
        return f"KeptVerdicts({len(self._known)} from the last run, {len(self._recent)} of this run)"
