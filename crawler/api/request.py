"""What a callback asks for: a further URL, and who gets its page."""

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from crawler.storage.keys import HANDOVER
from crawler.storage.kv import seal, unseal

Callback = Callable[[Any], Any]


class Request(msgspec.Struct, frozen=True):
    """A URL to fetch, relative to the page it was found on, once in a crawl.

    `callback` gets its page instead of `parse`: a named function or method, as
    its name is kept with the URL. `meta` comes back as `page.meta`; it is kept
    as JSON. The URL filter, robots.txt, politeness and the check for duplicates
    hold for it as for any link; a URL that was fetched before is not fetched again.

        >>> from crawler import Request
        >>> Request("/page/2", meta={"shelf": 7}).url
        '/page/2'
    """

    url: str
    callback: Callback | None = None
    meta: Mapping[str, Any] = {}

    def __post_init__(self) -> None:
        name = callback_name(self.callback)
        if self.callback is not None and (not name or name.startswith("<")):
            raise ValueError(f"Request({self.url!r}): a callback needs a name; a lambda has none")


def callback_name(callback: Callback | None) -> str:
    """The name by which a callback is kept; "" for none."""
    return "" if callback is None else str(getattr(callback, "__name__", ""))


class Handover(msgspec.Struct, frozen=True, array_like=True):
    """How a page is to be handed to the user's code: the value of `x/<fingerprint>`.

    It is there from the request on, if that names a callback or carries `meta`;
    `waiting` from the commit of the page on; gone once the user's code is done
    with the page.
    """

    callback: str = ""
    meta: dict[str, Any] = {}
    waiting: bool = False
    depth: int = 0


_decode = msgspec.msgpack.Decoder(Handover).decode


def key(fingerprint: int) -> bytes:
    """The key of a page's handover."""
    return HANDOVER + fingerprint.to_bytes(8, "big")


def pack(handover: Handover) -> bytes:
    """The store's value."""
    return seal(msgspec.msgpack.encode(handover))


def unpack(at: bytes, value: bytes | None) -> Handover:
    """What `pack` was given; the plain handover if there is none."""
    return Handover() if value is None else _decode(unseal(at, value))
