"""Parses the header fields of a client once, to find the client's properties and the forms of a copy that it accepts.

A client sends the same fields with each request. `ClientHeadersCache` maps the bytes of a header block to its
meaning. So if a header block is known, only the target of the request is parsed. The cache remembers a block
only if the parser accepted it as a complete request for a plain copy. To be remembered, the request must have
at most one condition or range and no body, and its connection must stay open.
"""

import re
from collections.abc import Mapping

from msgspec import Struct
from multidict import CIMultiDict

from crawler.serve import header_fields, host_check
from crawler.serve.freshness_demand import FreshnessDemand, demand_of
from crawler.serve.representation import CopyForm

BLOCK_BYTES_MAX = 2048
BLOCKS_MAX = 512  # maximum number of header blocks remembered; a block and its parsed form use about 4 KB
_MORE_THAN_A_COPY = frozenset(
    ("content-length", "transfer-encoding", "expect", "upgrade", "te", "trailer", "x-crawler-hop")
    + ("range", "if-range", "if-none-match", "if-modified-since", "if-match", "if-unmodified-since")
)


# A condition or range differs from page to page, so it is cut out of the block before the block is looked up.
# The pattern begins with a line end, because `re` is fast if a pattern begins with literal text. A
# block begins with a line end, too.
_CONDITION = re.compile(
    rb"\r\n(If-None-Match|If-Modified-Since|Range): ([!-~](?:[ -~]{0,254}[!-~])?)(?=\r\n)"
)


def without_condition(block: bytes) -> tuple[bytes, dict[str, str]]:
    """Cut the first condition or range out of a block. Return the rest, and the field that was cut out ({} if none)."""
    match = _CONDITION.search(block)
    if match is None:
        return block, {}
    return block[: match.start()] + block[match.end() :], {match[1].decode(): match[2].decode()}


class ClientHeaders(Struct, frozen=True):
    """The properties of a client.

    `base` is the scheme and authority with which the client addressed this server. `form` is the form in
    which the client wants a copy. If the client wants a range, this range is cut from the copy in the form
    `range_form`, which has no content coding. `is_bot` is true if the client calls itself a robot. `plain` is
    true if the headers only request a copy and keep the connection open. `demand` is what the client demands of
    the age of a copy.
    """

    headers: Mapping[str, str]
    base: str
    form: CopyForm
    range_form: CopyForm
    is_bot: bool
    plain: bool
    demand: FreshnessDemand | None = None


def read(headers: Mapping[str, str], base: str) -> ClientHeaders:
    """Parse the header fields of a request that addressed this server as `base`."""
    taken: frozenset[bytes] = frozenset()
    if (accept := headers.get("Accept-Encoding")) and "Range" not in headers:
        taken = header_fields.accepted(accept)
    plain = _MORE_THAN_A_COPY.isdisjoint(name.lower() for name in headers)
    plain = plain and headers.get("Connection", "keep-alive").lower() == "keep-alive"
    demand = demand_of(headers)
    form, range_form = CopyForm(base, taken), CopyForm(base, frozenset())
    is_bot = host_check.is_bot(headers.get("User-Agent", ""))
    return ClientHeaders(headers, base, form, range_form, is_bot, plain and demand is None, demand)


class ClientHeadersCache:
    """Maps the bytes of header blocks to `ClientHeaders`; forgets all blocks when it holds `BLOCKS_MAX` of them.

    A block begins with the line break that ends the request line.
    """

    def __init__(self) -> None:
        self._known: dict[bytes, ClientHeaders] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, block: bytes) -> ClientHeaders | None:
        """Return the meaning of a header block, or None if the block is not remembered."""
        return self._known.get(block)

    def put(self, block: bytes, client_headers: ClientHeaders) -> None:
        """Remember a block of header fields if they are plain and all parsers would split the block in the same way.

        A condition, such as If-None-Match, is not remembered. `client_headers` is the meaning of the whole block.
        """
        block, condition = without_condition(block)
        if condition:
            others = CIMultiDict(client_headers.headers)
            for name in condition:
                others.popall(name, None)
            client_headers = read(others, client_headers.base)
        lines = block.count(b"\r\n")
        if not client_headers.plain or len(block) > BLOCK_BYTES_MAX:
            return
        if not block.count(b"\r") == block.count(b"\n") == lines == len(client_headers.headers) + 2:
            return
        if len(self._known) >= BLOCKS_MAX:
            self._known.clear()
        self._known[block] = client_headers
