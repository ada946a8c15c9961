"""Combines the answers of a crawl's processes to `why`, for the command line and HTTP.

The process that owns the URL decides the verdict. But the URL may still be in the outbox of another process,
another process may have stored it as a file of one of its pages, and the page that led to the URL may belong to
another process. So further requests tell the owner the first two facts, and ask all processes for the third.
`explanation` is a generator: it yields the request that every process must answer next, and receives the
answers. So the command line and the HTTP server can each send the requests in their own way.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any

import msgspec

from crawler.pages.holdings import HeldCopies, answering

# if a URL is unknown, at most this many stored pages are searched for a link to it
SEARCHED_MAX = 20_000

Requests = Generator[dict[str, Any], Sequence[dict[str, Any]], dict[str, Any] | None]


def explanation(url: str) -> Requests:
    """Return the facts about a URL from the process that owns it; None if this process did not answer."""
    answers = yield {"command": "why", "url": url}
    answer = _of_owner(answers)
    if answer is None:
        return None
    sender = next((each["process"] for each in answers if each.get("in_outbox")), "")
    told = {"sender": sender} if sender and not answer["known"] else {}
    if told := told | _stored_elsewhere(answer, answers):
        answer = _of_owner((yield {"command": "why", "url": url, **told})) or answer
    via = (answer.get("record") or {}).get("via") or answer.get("via", "")
    if len(answers) > 1 and via.strip("0") and "found_on" not in answer:
        pages = yield {"command": "page_url", "fingerprint": via}
        if found := next((each["url"] for each in pages if each["url"]), ""):
            answer["found_on"] = found
    return answer


def _stored_elsewhere(answer: Mapping[str, Any], answers: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the captures of the process that answers for a URL (`pages/holdings.py`); {} if it is the owner."""
    holdings = {
        each["process"]: msgspec.convert(each["holding"], HeldCopies)
        for each in answers
        if each.get("holding")
    }
    name = answering(holdings)
    if name is None or name == answer["process"]:
        return {}
    captures = next(each.get("captures", []) for each in answers if each["process"] == name)
    return {"stored_by": name, "captures": captures}


def may_be_unfollowed(answer: Mapping[str, Any]) -> bool:
    """Return whether a stored page may link to the URL although the crawl never queued it (`audit/unfollowed.py`)."""
    return answer.get("filter") == "accepted" and not answer["known"] and not answer.get("sender")


def _of_owner(answers: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return the answer of the process that owns the URL; None if it did not answer.

    In a crawl of one process, the answer names no owner.
    """
    return next((each for each in answers if each.get("owner") == each.get("process")), None)
