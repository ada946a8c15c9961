"""Builds the WARC records of one capture from a fetch."""

from collections.abc import Callable, Iterator
from functools import partial

from crawler.pages import warc
from crawler.pages.captures import Capturing
from crawler.pages.request_query import query_of_request
from crawler.records import Fetch, LinkFlag, Outcome, Rendering, TaskKind

# bytes; a larger payload is written in slices, because the whole record would be a second copy in memory
_WHOLE_BYTES_MAX = 4 << 20
_SLICE_BYTES = 1 << 20


class RecordBuilder:
    """Turns a `Capturing` into records.

    With `decoded`, payloads are stored without content coding. With `block_digests`, records state the SHA-1
    of their block. With `with_bodies`, the bodies of requests are recorded. `url_of` returns the URL of a
    fingerprint, and `random(n)` returns n random bytes. `warcinfo` is the id of the segment's first record.
    """

    def __init__(
        self,
        *,
        decoded: bool,
        block_digests: bool,
        random: Callable[[int], bytes],
        url_of: Callable[[int], str],
        with_bodies: bool = True,
    ) -> None:
        self._decoded = decoded
        self._block_digests = block_digests
        self._with_bodies = with_bodies
        self.warcinfo = b""
        self.random = random
        self._url_of = url_of

    def records(
        self, capturing: Capturing, *, with_receipt: bool = False
    ) -> Iterator[bytes | warc.LargeRecord]:
        """Yield the uncompressed WARC records of a capture, beginning with the answer.

        With `with_receipt`, there is also a record of the whole consent receipt, to which other captures
        refer.
        """
        fetch = capturing.fetch
        date = warc.date_text(capturing.instant)
        target = warc.target_fields(fetch.url, fetch.address, fetch.version, self.warcinfo)
        identities = warc.record_ids(self.random, 3)
        answer, request, metadata = (warc.Heading(each, date, target) for each in identities)
        head, rebuilt = self._head(capturing)
        yield self._answer(capturing, answer, head)
        if fetch.request_head:
            asked = self._request(fetch)
            yield warc.request(request, answer.identity, asked, block_digest=self._block_digests)
        if capturing.record is not None or capturing.fetch_task.kind is TaskKind.HOP:
            facts = self._facts(capturing)
            if rebuilt:
                facts.append(("httpHead", "rebuilt"))
            yield warc.metadata(metadata, answer.identity, facts, block_digest=self._block_digests)
        if with_receipt and capturing.stamp is not None:
            yield warc.receipt(warc.record_ids(self.random, 1)[0], date, capturing.stamp, self.warcinfo)
        if (shown := fetch.shown) is not None:
            yield from self._shown(fetch, shown, answer.identity, date)

    def query_of(self, fetch: Fetch) -> str:
        """Return the query that distinguishes the request from a plain GET in the archive, or "" for a plain GET."""
        return query_of_request(self._request(fetch))

    def _request(self, fetch: Fetch) -> bytes:
        return fetch.request_head + (fetch.request_body if self._with_bodies else b"")

    def _shown(self, fetch: Fetch, rendering: Rendering, answer: bytes, date: bytes) -> Iterator[bytes]:
        """Yield the records of the page as a browser showed it: the screenshot, if there is one, and then the DOM."""
        view_id, dom_id = warc.record_ids(self.random, 2)
        resource = partial(warc.resource, warcinfo=self.warcinfo)
        if rendering.view:
            yield resource(view_id, date, f"urn:view:{fetch.url}", answer, b"image/png", rendering.view)
        html = b"text/html; charset=utf-8"
        yield resource(dom_id, date, f"urn:dom:{fetch.url}", answer, html, rendering.dom, rendering.broke)

    def _head(self, capturing: Capturing) -> tuple[bytes, bool]:
        """Return the answer's header block, and True if it was rebuilt from the parsed fields."""
        fetch = capturing.fetch
        undone = self._decoded and bool(fetch.content)
        # The Content-Length of a 304 is the length of the page, which the answer does not contain, so the
        # field is kept.
        confirms = fetch.outcome is Outcome.UNCHANGED
        length = None if confirms else capturing.payload_bytes
        head = b"" if undone else warc.received_head(fetch.head_block, length)
        if head:
            return head, False
        line = f"{fetch.version} {fetch.status:03d} {fetch.reason}".encode("latin-1", "replace")
        return warc.http_head(line, warc.stored_headers(fetch.headers, length, decoded=undone)), True

    def _answer(self, capturing: Capturing, of: warc.Heading, head: bytes) -> bytes | warc.LargeRecord:
        fetch, with_block = capturing.fetch, self._block_digests
        if capturing.original is not None and capturing.profile:
            digest = capturing.payload_digest
            if capturing.profile == warc.NOT_MODIFIED and capturing.record is not None:
                digest = capturing.record.digest  # of the payload that the answer confirms
            return warc.revisit(
                of,
                head,
                digest,
                profile=capturing.profile,
                refers_to_url=capturing.original.url,
                refers_to_date=warc.date_text(capturing.original.fetched_at),
                block_digest=with_block,
            )
        payload, digest, truncated = capturing.payload, capturing.payload_digest, fetch.truncated
        if fetch.part is None and len(payload) <= _WHOLE_BYTES_MAX:
            return warc.response(of, head, payload, digest, truncated=truncated, block_digest=with_block)
        pieces = partial(_slices, payload) if fetch.part is None else fetch.part.pieces
        length = capturing.payload_bytes
        return warc.large_response(
            of, head, pieces, length, digest, truncated=truncated, block_digest=with_block
        )

    def _facts(self, capturing: Capturing) -> list[tuple[str, object]]:
        fetch, fetch_task, stamp = capturing.fetch, capturing.fetch_task, capturing.stamp
        facts: list[tuple[str, object]] = []
        if fetch_task.flags & LinkFlag.OWN_REQUEST:
            facts.append(("requestKey", f"{fetch_task.fingerprint:016x}"))
        if fetch_task.via:
            facts.append(("via", self._url_of(fetch_task.via)))
        facts += (
            ("depth", fetch_task.depth),
            ("redirects", fetch_task.redirects),
            ("fetchTimeMs", int(fetch.took * 1000)),
            ("outcome", fetch.outcome.value),
        )
        if fetch.part:
            facts.append(("resumedAt", " ".join(map(str, fetch.part.head.resumed))))
        facts.append(("robots", capturing.directives))
        if not fetch.tls_ok:
            facts.append(("tls", "not verified"))
        if fetch.rendering is not None:
            facts += _rendering_facts(fetch.rendering)
        if stamp is not None:
            facts += (("consent", stamp.answers), ("consentReceipt", stamp.digest.hex()))
        return facts


def _rendering_facts(rendering: Rendering) -> list[tuple[str, object]]:
    """Return the lines about a rendering for the metadata record. `upkeep/recapture.py` reads these lines."""
    return [
        ("renderWhy", rendering.why),
        ("renderTimeMs", int(rendering.took * 1000)),
        ("renderCpuMs", int(rendering.cpu * 1000)),
        ("renderRequests", rendering.requests),
        ("renderMissing", rendering.missing),
        ("renderCutBy", rendering.broke),
        ("renderGained", int(rendering.added)),
        ("renderFailures", rendering.failures or ""),
        ("renderAgainAt", int(rendering.again_at) or ""),
    ]


def _slices(payload: bytes) -> Iterator[bytes]:
    for start in range(0, len(payload), _SLICE_BYTES):
        yield payload[start : start + _SLICE_BYTES]
