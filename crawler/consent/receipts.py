"""Consent receipts, which record what a site stated when one of its pages was fetched (`consent/README.md`, "Receipts").

    capture, page record --digest--> Receipt           --digest--> SiteStatements
    14 bytes per page                shared by pages               shared by the host

A digest is the beginning of the SHA-256 of the encoded value. A receipt and the statements of its site are put
into the batch of the first page that refers to them:

    C/<bucket><digest>    Receipt or SiteStatements, sealed msgpack

`<bucket>` is derived from the page's fingerprint, so a receipt moves with its pages when a crawl is resharded.
"""

import hashlib
from typing import TypeVar

import msgspec

from crawler.consent.resolving import Consent
from crawler.consent.statements import UNKNOWN, USES
from crawler.errors import DamageError
from crawler.storage.keys import RECEIPT
from crawler.storage.kv import KeyValue, seal, unseal

# size of a digest in bytes; the receipts of a page take at most 40 bytes, including two digests
DIGEST_BYTES = 14


class SiteFile(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A fetched file with a site's statements: tdmrep.json or a licence document.

    `digest` is the SHA-256 of the file's content, or b"" if there was no content. `problem` is the reason why
    the file could not be read.
    """

    kind: str
    url: str
    at: float
    status: int = 0
    digest: bytes = b""
    problem: str = ""


class SiteStatements(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind", tag="site"):
    """The statements of a host that apply to one authority and one product token at one moment.

    `robots_url` is "" if robots.txt was not fetched because it is not obeyed. `robots_digest` is the SHA-256
    of the content of robots.txt, and `robots_record` is the `c/` key of its WARC record, if there is one.
    `group` is the agent of the group of robots.txt that applies, or "" if none applies. `usage`, `signals`
    and `licenses` are raw values of robots.txt.
    """

    authority: str
    token: str
    robots_url: str = ""
    robots_at: float = 0.0
    robots_status: int = 0
    robots_digest: bytes = b""
    robots_record: bytes = b""
    group: str = ""
    usage: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    files: tuple[SiteFile, ...] = ()


class Receipt(msgspec.Struct, frozen=True, gc=False, omit_defaults=True, tag_field="kind", tag="page"):
    """The statements about a page, and the resolved answers.

    `site` is the digest of the `SiteStatements`. `rule` is the line of robots.txt that allowed or denied the
    fetch, or "" if there is none. `fields` and `metas` are header fields and meta elements of the page.
    `deciding` has the statements of the host that apply to the page, as (source, raw text). `complete` is
    False if some statement could not be read. Then a use that the unread statement might have refused counts
    as not allowed. `key_id` names the key that signed the request; it is "" if the request was not signed.
    """

    site: bytes
    uses: Consent
    rule: str = ""
    fields: tuple[tuple[str, str], ...] = ()
    metas: tuple[tuple[str, str], ...] = ()
    deciding: tuple[tuple[str, str], ...] = ()
    parsers: tuple[str, ...] = ()
    complete: bool = True
    key_id: str = ""


class ReceiptBlock(msgspec.Struct, frozen=True):
    """A whole receipt with the statements of its site. In JSON, this is the content of the receipt's WARC record."""

    receipt: Receipt
    site: SiteStatements


Stored = Receipt | SiteStatements
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Stored).decode
_decode_block = msgspec.json.Decoder(ReceiptBlock).decode
_T = TypeVar("_T", Receipt, SiteStatements)


def packed(value: Stored) -> tuple[bytes, bytes]:
    """Encode a receipt, or the statements of a site; return the digest and the encoded value."""
    data = _encode(value)
    return hashlib.sha256(data).digest()[:DIGEST_BYTES], data


def receipt_key(fingerprint: int, digest: bytes) -> bytes:
    """Return the key under which a receipt, or the statements of a site, is stored for a page with this fingerprint."""
    return RECEIPT + fingerprint.to_bytes(8, "big")[:2] + digest


def put_once(store: KeyValue, fingerprint: int, digest: bytes, data: bytes) -> tuple[bytes, bytes] | None:
    """Return the (key, value) with which an encoded value is stored; None if the store already has the value."""
    key = receipt_key(fingerprint, digest)
    return None if store.get(key) is not None else (key, seal(data))


def unpack(key: bytes, value: bytes) -> Stored:
    """Decode a value of a `C/` key.

    Raises:
        DamageError: the value is damaged, or does not match its key.
    """
    data = unseal(key, value)
    try:
        found = _decode(data)
    except msgspec.MsgspecError as error:
        raise DamageError(f"store: value of key {key!r}: {error}") from error
    digest = key[4:]  # earlier versions used longer digests
    if len(digest) < DIGEST_BYTES or not hashlib.sha256(data).digest().startswith(digest):
        raise DamageError(f"store: the content of the receipt {digest.hex()} does not match its digest")
    return found


def load(store: KeyValue, fingerprint: int, digest: bytes, kind: type[_T]) -> _T | None:
    """Return a stored receipt, or stored site statements; None if the store has none with this digest.

    Raises:
        DamageError: the stored value is damaged.
    """
    key = receipt_key(fingerprint, digest)
    value = store.get(key) if digest else None
    if value is None:
        return None
    found = unpack(key, value)
    if not isinstance(found, kind):
        raise DamageError(f"store: {key!r} is not a {kind.__name__}")
    return found


def block_of(receipt: Receipt, site: SiteStatements) -> bytes:
    """Return the whole receipt as JSON. `read_block` converts this JSON to exactly the same receipt."""
    return msgspec.json.encode(ReceiptBlock(receipt, site))


def read_block(block: bytes) -> ReceiptBlock | None:
    """Return the receipt in a WARC record; None if the record is not a receipt."""
    try:
        return _decode_block(block)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def answers_of(uses: Consent) -> str:
    """Return the known answers as text, such as "search=y train_ai=n"."""
    known = ((use, getattr(uses, use).preference) for use in USES)
    return " ".join([f"{use}={answer}" for use, answer in known if answer is not UNKNOWN])
