"""Checks the host and the origin of requests to a listener, and recognises robots.

A hostile page in a browser can point its own host name to this server's address (DNS rebinding) and then read
the answers. So the Host field must be an IP address, `localhost`, or a name that the configuration lists.
Addresses are safe, because a page that was loaded from an address belongs to the server at that address.
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
    """Parse an address in the same way as `listen_at`. Error messages name the configuration key `key`."""
    try:
        return listen_at(text)
    except ConfigError as error:
        raise bad_setting(key, str(error)) from None


@lru_cache(maxsize=256)
def is_own_host(host: str, names: frozenset[str]) -> bool:
    """Return whether a Host field names this listener."""
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
    """Return the Host field of a request after checking that it names this listener.

    Raises:
        HttpError: 400 if there is none or more than one, 421 if it names another host.
    """
    if len(hosts) != 1 or not hosts[0]:
        raise HttpError(400, "bad_request", "send exactly one Host field")
    if len(hosts[0]) > _HOST_CHARS_MAX or not is_own_host(hosts[0], names):
        raise HttpError(
            421,
            "misdirected",
            "this server does not have that name; if it should, add the name to serve.names",
        )
    return hosts[0]


def is_same_site(fields: Mapping[str, str], host: str) -> bool:
    """Return False for a request that a page of another origin makes in the user's browser.

    The fields Origin and Sec-Fetch-Site show the origin.
    """
    origin = fields.get("Origin", "")
    ours = not origin or origin in (f"http://{host}", f"https://{host}")
    return ours and fields.get("Sec-Fetch-Site", "same-origin") in ("same-origin", "none")


def check_same_site(fields: Mapping[str, str], host: str, why: str) -> None:
    """Raise HttpError (403) with `why` if a page of another origin makes the request."""
    if not is_same_site(fields, host):
        raise HttpError(403, "refused", why)


def is_bot(user_agent: str) -> bool:
    """Return whether a client calls itself a robot."""
    return _BOT.search(user_agent) is not None
