"""Makes the receipt of each page that is stored, and puts it into the page's batch.

Most pages of a host have equal statements, so finished receipts are cached. The key of the cache contains
everything on which a receipt depends: the state of the site, the rule of robots.txt, the page's own
statements, and, if the site has statements about paths, the path. A look-up in the cache takes about 5 us.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import NamedTuple

from crawler.consent import rsl, tdmrep, text_statements
from crawler.consent.paths import address_of
from crawler.consent.receipts import (
    Receipt,
    SiteStatements,
    answers_of,
    block_of,
    load,
    packed,
    put_once,
    receipt_key,
)
from crawler.consent.resolving import PageStatements, statements_about
from crawler.consent.rsl import ANNOUNCED_MAX, announced_licenses
from crawler.consent.site_book import Site, SiteBook
from crawler.consent.statements import FIELD_OCTETS_MAX, LINES_MAX, USES
from crawler.errors import DamageError
from crawler.records import Extracted, Fetch, ReceiptStamp
from crawler.storage.kv import Batch, KeyValue
from crawler.urls.canonical import authority
from crawler.urls.media_type import is_page

RECEIPTS_CACHED_MAX = 8192  # maximum number of cached receipts, about 1 kB each
KEYS_CACHED_MAX = 65_536  # maximum number of keys that are known to be in the store, 100 bytes each
_FIELDS = frozenset(
    {b"content-usage", b"content-signal", b"x-robots-tag", b"tdm-reservation", b"tdm-policy", b"link"}
)
_PARSERS = (*text_statements.PARSERS, tdmrep.PARSER, rsl.PARSER)
_Fields = tuple[tuple[str, str], ...]


class OwnStatements(NamedTuple):
    """The statements of a page about itself. `complete` is False if some of its meta elements could not be read."""

    fields: _Fields = ()
    metas: _Fields = ()
    licenses: tuple[str, ...] = ()
    complete: bool = True


_SILENT, _SCANNED = OwnStatements(), OwnStatements(complete=False)


class _Made(NamedTuple):
    stamp: ReceiptStamp
    data: bytes


class Stamping:
    """Makes the receipts of one process.

    Args:
        store: has the receipts, under the prefix `C/`.
        key_id: returns the id of the key that signed a request, or "" if the request was not signed.
    """

    def __init__(
        self, store: KeyValue, book: SiteBook, token: str, key_id: Callable[[Fetch], str] = lambda fetch: ""
    ) -> None:
        self._store, self.book, self._token, self._key_id = store, book, token, key_id
        self._made: OrderedDict[object, _Made] = OrderedDict()
        self._put: OrderedDict[bytes, None] = OrderedDict()

    def stamp(
        self, fetch: Fetch, fingerprint: int, extracted: Extracted | None, before: bytes | None, batch: Batch
    ) -> ReceiptStamp:
        """Return the receipt of an answer, and add to the batch the parts of it that are not stored yet.

        Call this in the order of the commits. A call takes about 10 us.

        Args:
            before: the receipt of the copy whose meta elements still apply, b"" if it has no receipt; None if there is no
                such copy.
        """
        site = self.book.noted(fetch.site, authority(fetch.url))
        earlier = None if before is None else self._earlier(fingerprint, before)
        own = own_statements(fetch, extracted, repeats=before is not None, earlier=earlier)
        made = self._receipt(site, fetch, own)
        key = receipt_key(fingerprint, made.stamp.digest)
        if key not in self._put:
            self._put_new(fingerprint, site.digest, site.data, batch)
            self._put_new(fingerprint, made.stamp.digest, made.data, batch)
            # later pages may rely on uncommitted keys, because the process ends if a commit group fails
            self._put[key] = None
            if len(self._put) > KEYS_CACHED_MAX:
                self._put.popitem(last=False)
        return made.stamp

    def wanted_files(self, fetch: Fetch, extracted: Extracted | None, now: float) -> list[str]:
        """Return the URLs of files about a page's site that must be fetched: tdmrep.json and licence documents."""
        name = authority(fetch.url)
        site = self.book.noted(fetch.site, name)
        own = own_statements(fetch, extracted, repeats=False, earlier=None).licenses
        announced = self.book.announced(site, fetch.url, own) if own or site.statements.licenses else ()
        return self.book.wanted(name, announced, now)

    def _earlier(self, fingerprint: int, digest: bytes) -> Receipt | None:
        try:
            return load(self._store, fingerprint, digest, Receipt)
        except DamageError:  # `check` reports the damage; the meta elements then count as unknown
            return None

    def _receipt(self, site: Site, fetch: Fetch, own: OwnStatements) -> _Made:
        _, target = address_of(fetch.url)
        rule = site.rules.rule(target)
        image = fetch.content_type.startswith("image/")
        # If the page itself announces a licence, the URL of the licence may be relative to the page's URL.
        bound = fetch.url if own.licenses else ""
        name = site.digest, rule, own, image, site.place(target), bound, self._key_id(fetch)
        made = self._made.get(name)
        if made is None:
            made = self._make(site, fetch, own, "" if rule is None else rule.line)
            self._made[name] = made
            if len(self._made) > RECEIPTS_CACHED_MAX:
                self._made.popitem(last=False)
        return made

    def _make(self, site: Site, fetch: Fetch, own: OwnStatements, line: str) -> _Made:
        announced = self.book.announced(site, fetch.url, own.licenses)
        fields = [(name.encode("latin-1"), value.encode("latin-1", "replace")) for name, value in own.fields]
        if fetch.content_type:
            fields.append((b"content-type", fetch.content_type.encode("latin-1", "replace")))
        said = statements_about(fetch.url, site.host(announced), fields, self._token, meta=own.metas)
        complete = own.complete and len(announced) <= ANNOUNCED_MAX and site.has_read(announced)
        unread = USES if not complete else ("tdm",) if site.tdm_unread else ()
        receipt = Receipt(
            site.digest,
            said.consent(unread),
            line,
            own.fields,
            own.metas,
            _deciding(said, announced),
            _PARSERS,
            not unread,
            self._key_id(fetch),
        )
        digest, data = packed(receipt)
        block = block_of(receipt, site.statements)
        return _Made(ReceiptStamp(digest, answers_of(receipt.uses), block), data)

    def _put_new(self, fingerprint: int, digest: bytes, data: bytes, batch: Batch) -> None:
        if (item := put_once(self._store, fingerprint, digest, data)) is not None:
            batch.put(*item)


def own_statements(
    fetch: Fetch, extracted: Extracted | None, *, repeats: bool, earlier: Receipt | None
) -> OwnStatements:
    """Return what an answer says about its page.

    If the answer repeats a known copy, or no browser could show it (`repeats`), the meta elements of that copy still
    apply, in addition to those of the answer; `earlier` is the receipt that contains them. Header fields that a 304
    does not send keep their earlier values (RFC 9111, section 3.2).
    """
    fields = _own_fields(fetch.headers) if fetch.has_any(_FIELDS) else ()
    if extracted is not None and not (fields or repeats or extracted.statements or extracted.licenses):
        return _SCANNED if extracted.parse_limit else _SILENT
    if repeats and fetch.status == 304 and earlier is not None:
        sent = {name for name, _ in fields}
        fields = (*fields, *(field for field in earlier.fields if field[0] not in sent))
    metas, complete = _own_metas(fetch, extracted)
    if repeats:
        known, known_complete = (earlier.metas, earlier.complete) if earlier is not None else ((), False)
        complete = known_complete and (complete or extracted is None)
        metas = tuple(dict.fromkeys((*metas, *known)))
    linked = tuple(url for name, url in metas if name == "license")
    links = [value for name, value in fields if name == "link"]
    licenses = (*announced_licenses((), links), *linked) if links or linked else ()
    complete = complete and len(metas) <= LINES_MAX and len(fields) <= LINES_MAX
    return OwnStatements(fields[: LINES_MAX + 1], metas[: LINES_MAX + 1], licenses, complete)


def _own_metas(fetch: Fetch, extracted: Extracted | None) -> tuple[_Fields, bool]:
    """Return the meta elements of an answer, with the licences that it links, and whether all of them were read."""
    if extracted is None:
        return (), not is_page(fetch.content_type, fetch.content)
    licenses = (("license", url) for url in extracted.licenses)
    return (*extracted.statements, *licenses), not extracted.parse_limit


def _own_fields(headers: Iterable[tuple[bytes, bytes]]) -> _Fields:
    """Return those header fields of an answer that can state how the page may be used (`_FIELDS`).

    Names are in lower case. Values are cut one octet beyond `FIELD_OCTETS_MAX`, so that the parsers still see
    that a value exceeds this limit.
    """
    return tuple(
        [
            (lowered.decode("latin-1"), value[: FIELD_OCTETS_MAX + 1].decode("latin-1"))
            for name, value in headers
            if (lowered := name.lower()) in _FIELDS and (lowered != b"link" or b"rsl+xml" in value.lower())
        ]
    )


def _deciding(said: PageStatements, announced: Iterable[str]) -> _Fields:
    """Return the host's statements that apply to a page, each as (source, raw text)."""
    found = [("content-usage-robots", line) for line in said.usage_robots.raw]
    found += [("content-signal-robots", line) for line in said.signal_robots.raw]
    found += [("tdmrep", value) for value in (*said.tdm.raw, *said.tdm.policies)]
    found += [("rsl", url) for url in announced]
    found += [("rsl-server", server) for server in said.rsl.raw]
    return tuple(found)


def load_whole(store: KeyValue, fingerprint: int, digest: bytes) -> tuple[Receipt, SiteStatements] | None:
    """Return a receipt with the statements of its site; None if the page has no receipt.

    Raises:
        DamageError: the receipt is damaged or incomplete.
    """
    receipt = load(store, fingerprint, digest, Receipt)
    site = None if receipt is None else load(store, fingerprint, receipt.site, SiteStatements)
    return None if receipt is None or site is None else (receipt, site)


def load_block(store: KeyValue, fingerprint: int, digest: bytes) -> bytes:
    """Return a receipt with the statements of its site as JSON; b"" if the page has no receipt.

    Raises:
        DamageError: the receipt is damaged or incomplete.
    """
    found = load_whole(store, fingerprint, digest)
    return b"" if found is None else block_of(*found)
