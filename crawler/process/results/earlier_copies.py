"""Answers the questions of a fetch task about the copies of its URL that earlier fetches stored; changes nothing.

before the request      is it conditional? may a stored answer replace it?
before parsing          does the answer show anything new?
"""

from crawler.errors import DamageError
from crawler.frontier.refresh.refreshing import Refresh
from crawler.frontier.refresh.validators import Validators
from crawler.pages.page_cache import PageCache
from crawler.records import Fetch, FetchTask, LinkFlag, Outcome, PageRecord, PageState
from crawler.urls.canonical import canonical

_AGAIN = LinkFlag.AGAIN
_KNOWN = LinkFlag.REFRESH | _AGAIN


def _lacks_receipt(record: PageRecord) -> bool:
    """Return whether a known page has no receipt yet. If so, its meta elements must be read once."""
    return not record.receipt


class EarlierCopies:
    """The stored copies in `pages`."""

    def __init__(self, pages: PageCache, validators: Validators, refresh: Refresh | None) -> None:
        self._pages, self._validators, self._refresh = pages, validators, refresh

    def conditions(self, fetch_task: FetchTask, now: float) -> tuple[str, str]:
        """Return the validators (ETag, Last-Modified) for a conditional request. A validator is "" if it cannot be used.

        If all copies are withdrawn, no validators are returned, because a 304 would leave the page without
        any copy to show.
        """
        if self._pages.withdrawals and next(self._pages.captures(fetch_task.fingerprint), None) is None:
            return "", ""
        record = self._record(fetch_task)
        if record is None or _lacks_receipt(record):
            return "", ""
        # An unchanged static answer would not prove that the rendered page is unchanged.
        if record.state is PageState.STORED and record.rendered:
            return "", ""
        if fetch_task.flags & _AGAIN:
            return self._validators.conditions(fetch_task.fingerprint, fetch_task.host, record, now)
        if self._refresh is None:
            return "", ""
        return self._refresh.outcomes.conditions(fetch_task, record, now)

    def known_record(self, fetch_task: FetchTask) -> PageRecord | None:
        """Return the record of a stored page that is fetched again; None if the page is new or has no copy."""
        record = self._record(fetch_task)
        return record if record is not None and record.state is PageState.STORED else None

    def _record(self, fetch_task: FetchTask) -> PageRecord | None:
        """Return the record of a page that is fetched again; None if the page is new."""
        return self._pages.record(fetch_task.fingerprint) if fetch_task.flags & _KNOWN else None

    def shows_news(self, fetch_task: FetchTask, fetch: Fetch) -> bool:
        """Return whether an answer should be parsed. This is false if a refetch returned the same bytes as before."""
        record = self._record(fetch_task)
        if record is None or _lacks_receipt(record):
            return True
        return not self._pages.shows_known(fetch, fetch_task, record)

    def known_content(self, fetch_task: FetchTask) -> bytes:
        """Return the stored content of a page that is refetched; b"" if no content can be read."""
        try:
            copy = self._pages.get(fetch_task.fingerprint, with_noarchive=True)
        except DamageError:
            return b""
        return b"" if copy is None else copy.content

    def stored_answer(self, url: str) -> Fetch | None:
        """Return the newest complete answer of a URL in the archive; None if no answer can be read."""
        form = canonical(url)
        try:
            copy = self._pages.answer_of(form) if form is not None else None
        except DamageError:
            return None
        if copy is None:
            return None
        return Fetch(
            url,
            Outcome.FETCHED,
            status=copy.status,
            headers=copy.headers,
            content=copy.content,
            began=copy.capture.fetched_at,
        )

    def is_withdrawn(self, fetch: Fetch) -> bool:
        """Return whether the operator has withdrawn an answer."""
        form = canonical(fetch.url)
        return form is not None and self._pages.withdrawals.of_copy(form, fetch.began) is not None

    def prepare(self, fetch: Fetch) -> None:
        """Precompute the digests of a large answer, in any thread."""
        self._pages.digests.compute_ahead(fetch)
