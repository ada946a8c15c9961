"""The callbacks of a crawl, and the requests that they yield.

The stored names of callbacks are mapped to the user's functions. The URL filter accepts or rejects each request.
"""

import inspect
import logging
from typing import NamedTuple

from crawler.api.page import Page
from crawler.api.request import Callback, Request, callback_name
from crawler.errors import UsageError
from crawler.printable import printable
from crawler.process.results.admission import Admission
from crawler.urlfilter.rule_names import SCOPE

log = logging.getLogger("crawler")

FILTERED = "filtered"  # `Page.outcome` of a rejected request


class Callbacks:
    """The callbacks of a crawl. `parse` receives pages whose request names no other callback."""

    def __init__(self, parse: Callback | None) -> None:
        self._parse = parse
        self._named: dict[str, Callback] = {}

    @property
    def are_given(self) -> bool:
        """Return whether the user has given any callback."""
        return self._parse is not None or bool(self._named)

    def remember(self, request: Request) -> None:
        """Remember the callbacks of a request by their names."""
        for callback in (request.callback, request.errback):
            if callback is not None:
                self._named[callback_name(callback)] = callback

    def named(self, name: str) -> Callback:
        """Return the callback with this name, from a request of this run or from the module of `parse`."""
        if not name:
            assert self._parse is not None
            return self._parse
        owner = getattr(self._parse, "__self__", None) or inspect.getmodule(self._parse)
        found = self._named.get(name) or getattr(owner, name, None)
        if not callable(found):
            raise UsageError(f"no callback {name!r}: define it in the module or class of `parse`")
        return found  # type: ignore[no-any-return]


class JudgedRequests(NamedTuple):
    """The requests that the callbacks of a page have yielded.

    `accepted` holds each accepted request as (URL, request). `rejected` holds each rejected request as (URL, request,
    rule of the URL filter that rejects it).
    """

    accepted: list[tuple[str, Request]]
    rejected: list[tuple[str, Request, str]]


class RequestJudge:
    """Judges requests by the URL filter, and logs the first request that each rule rejects."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._rules_told: set[str] = set()

    def add(self, page: Page, request: Request, requests: JudgedRequests) -> None:
        """Judge a request that a callback of `page` has yielded, and add it to `requests`."""
        judged = self._admission.judge(request.url, request.flags, page.base, page.encoding)
        if judged.rule:
            requests.rejected.append((judged.url or request.url, request, judged.rule))
        else:
            requests.accepted.append((judged.url, request))

    def tell(self, requests: JudgedRequests) -> None:
        """Log the rejected requests, but only the first request that each rule rejects in a run."""
        for url, request, rule in requests.rejected:
            if rule not in self._rules_told:
                self._rules_told.add(rule)
                log.warning(
                    "a callback's request was dropped: %s: %s%s; the report counts all such requests in "
                    "urls.filtered.%s",
                    printable(url),
                    self._admission.reason(url, request.flags),
                    " (crawl.scope)" if rule == SCOPE else "",
                    rule,
                )
