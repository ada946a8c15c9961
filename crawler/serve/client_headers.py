"""A request's header fields, read once: what they say of the client and of what it accepts.

A client sends the same fields with each request. `ClientHeadersCache` remembers their meaning
by their bytes, so for fields that were met before only the target is parsed. It
remembers only blocks that the parser took for a whole request, and that ask for
a plain copy: no body, no condition, no range, no end of the connection.
"""

from collections.abc import Mapping

from msgspec import Struct

from crawler.serve import header_fields, host_check

BLOCK_BYTES_MAX = 2048
BLOCKS_MAX = 512  # blocks remembered, with what they mean some 4 KB each
_MORE_THAN_A_COPY = frozenset(
    ("content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer", "x-crawler-hop")
    + ("range", "if-range", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since")
)


class ClientHeaders(Struct, frozen=True):
    """`base`: scheme and authority by which it called us; `taken`: content codings it undoes; `is_bot`: it says so.

    `plain` means that its fields ask for nothing but a copy on a connection that stays.
    """

    headers: Mapping[str, str]
    base: str
    taken: frozenset[bytes]
    is_bot: bool
    plain: bool


def read(headers: Mapping[str, str], base: str) -> ClientHeaders:
    """The requester of a request that called us `base`."""
    taken: frozenset[bytes] = frozenset()
    if (accept := headers.get("Accept-Encoding")) and "Range" not in headers:
        taken = header_fields.accepted(accept)
    plain = _MORE_THAN_A_COPY.isdisjoint(name.lower() for name in headers)
    plain = plain and headers.get("Connection", "keep-alive").lower() == "keep-alive"
    return ClientHeaders(headers, base, taken, host_check.is_bot(headers.get("User-Agent", "")), plain)


class ClientHeadersCache:
    """Requesters by the bytes of their header fields, at most `BLOCKS_MAX`; then all are forgotten."""

    def __init__(self) -> None:
        self._known: dict[bytes, ClientHeaders] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, block: bytes) -> ClientHeaders | None:
        """The requester that these bytes behind a request line mean, None if they have not been met."""
        return self._known.get(block)

    def put(self, block: bytes, client_headers: ClientHeaders) -> None:
        """Remember a plain requester, unless another parser could see other lines in its block."""
        lines = block.count(b"\r\n")
        if not client_headers.plain or len(block) > BLOCK_BYTES_MAX:
            return
        if not block.count(b"\r") == block.count(b"\n") == lines == len(client_headers.headers) + 1:
            return
        if len(self._known) >= BLOCKS_MAX:
            self._known.clear()
        self._known[block] = client_headers
