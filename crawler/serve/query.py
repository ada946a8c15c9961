"""Parses the query of a request target, for all servers.

The usual mistake is a URL that is not percent-encoded, as in `/page?url=http://host/?a=1&b=2`: its `b=2` arrives as a
parameter of the endpoint. The query cannot show whether `at=2026` after such a URL belongs to the URL or to the endpoint.
So the rest of the query is never taken as part of the URL, and each endpoint rejects parameters that it does not have.

A `+` in the value of `url` is a plus sign, as in the URL itself; in other parameters, it is a space, as in forms. Bytes
that are not UTF-8 stay percent-encoded, so they name the same page as on the command line.
"""

import re
from collections.abc import Collection
from urllib.parse import parse_qsl

from crawler.serve.http_error import HttpError
from crawler.urls.typed_url import percent_encoded

_FIELDS_MAX = 64
_SHOWN_MAX = 40  # maximum number of characters of a wrong name that a message shows
_URL = re.compile(r"(?:\A|(?<=&))url=[^&]*")


def query_fields(query: str, endpoint: str, known: Collection[str] = ()) -> dict[str, str]:
    """Return the parameters of a query by name.

    Args:
        endpoint: the path, for messages.
        known: the parameters of the endpoint; () to accept all, of which the first of each name counts.

    Raises:
        HttpError: 400, the query has too many parameters, an unknown one, or one twice.
    """
    query = _URL.sub(lambda found: found[0].replace("+", "%2B"), query)
    try:
        decoded = parse_qsl(
            query, keep_blank_values=True, max_num_fields=_FIELDS_MAX, errors="surrogateescape"
        )
    except ValueError:
        why = f"the query has more than {_FIELDS_MAX} parameters"
        raise HttpError(400, "bad_request", why) from None
    pairs = [(percent_encoded(name), percent_encoded(value)) for name, value in decoded]
    if known:
        _check(pairs, endpoint, known)
    return dict(reversed(pairs))


def _check(pairs: Collection[tuple[str, str]], endpoint: str, known: Collection[str]) -> None:
    names = set[str]()
    for name, _ in pairs:
        if name not in known:
            why = f"{endpoint} has no parameter {name[:_SHOWN_MAX]!r}, only {', '.join(known)}"
        elif name in names:
            why = f"{endpoint} accepts only one parameter {name!r}"
        else:
            names.add(name)
            continue
        if "url" in known:
            why += "; in the URL, write & as %26: the value of url must be percent-encoded"
        raise HttpError(400, "bad_request", why)
