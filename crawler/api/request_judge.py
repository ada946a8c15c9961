"""Judges the requests that callbacks yield: the URL filter accepts or rejects each of them."""

import logging
from typing import NamedTuple

from crawler.api.page import Page
from crawler.api.request import Request
from crawler.printable import printable
from crawler.process.results.admission import Admission
from crawler.urlfilter.rule_names import SCOPE

log = logging.getLogger("crawler")

FILTERED = "filtered"  # `Page.outcome` of a rejected request


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
