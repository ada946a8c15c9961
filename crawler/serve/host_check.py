"""The names by which a listener may be called, and the requests that it counts.

A page in a browser can point its own name to our address (DNS rebinding) and then
read our answers. So the Host field must be an IP address, `localhost`, or a name
that the configuration lists. Addresses are safe: a page loaded from an address
belongs to it.
"""

import ipaddress
import re
from collections.abc import Mapping
from functools import lru_cache

from crawler.config.forms import listen_at
from crawler.errors import ConfigError, bad_setting
from crawler.serve.http_error import HttpError

_AUTHORITY = re.compile(r"(\[[0-9A-Fa-f:.]{2,45}\]|[0-9A-Za-z._-]{1,255})(?::[0-9]{1,5})?")
_HOST_CHARS_MAX = 300
_BOT = re.compile(r"bot\b|crawl|spider|slurp|archiver", re.IGNORECASE)


def parse_address(text: str, key: str) -> tuple[str, int]:
    """`listen_at`; an error names `key`."""
    try:
        return listen_at(text)
    except ConfigError as error:
        raise bad_setting(key, str(error)) from None


@lru_cache(maxsize=256)
def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Whether a Host field names this listener."""
    match = _AUTHORITY.fullmatch(host)
    if match is None:
        return False
    name = match[1].lower().rstrip(".")
    if name == "localhost" or name in names:
        return True
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def check_host(hosts: list[str], names: frozenset[str]) -> str:
    """The Host field of a request, found to be ours.

    Raises:
        Refusal: 400 without one or with two, 421 with a foreign one.
    """
    if len(hosts) != 1 or not hosts[0]:
        raise HttpError(400, "bad_request", "one Host field is needed")
    if len(hosts[0]) > _HOST_CHARS_MAX or not is_own_host(hosts[0], names):
        raise HttpError(
            421, "misdirected", "this listener has another name; serve.names lists those it knows"
        )
    return hosts[0]


def check_same_site(fields: Mapping[str, str], host: str, why: str) -> None:
    """Refuse a request that a browser sends on behalf of a page of another origin; programs send neither field.

    Raises:
        Refusal: 403 with `why`.
    """
    origin = fields.get("Origin", "")
    ours = not origin or origin in (f"http://{host}", f"https://{host}")
    if not ours or fields.get("Sec-Fetch-Site", "same-origin") not in ("same-origin", "none"):
        raise HttpError(403, "refused", why)


def is_bot(user_agent: str) -> bool:
    """Whether a client says of itself that it is a robot."""
    return _BOT.search(user_agent) is not None
