"""Checks, for `check` and `check --repair`, that the consent receipts to which pages refer exist and are intact."""

from collections.abc import Iterator
from contextlib import suppress

from crawler.consent.receipts import Receipt as PageReceipt
from crawler.consent.receipts import ReceiptBlock, Stored, packed, put_once, read_block, receipt_key, unpack
from crawler.errors import DamageError
from crawler.pages import reading, warc
from crawler.pages.captures import fingerprint_of, unpack_capture, unpack_record
from crawler.storage.keys import CAPTURE, PAGE, RECEIPT
from crawler.storage.kv import KeyValue, scan_prefix

_URI = warc.RECEIPT_URI.decode()


def problems(store: KeyValue) -> Iterator[str]:
    """Yield a line for each damaged receipt, and for each missing receipt to which a page or receipt refers.

    Pages without receipts, which earlier versions of the crawler stored, are not problems.
    """
    found, sites = set(), set()
    for key, value in scan_prefix(store, RECEIPT):
        try:
            stored = unpack(key, value)
        except DamageError as error:
            yield str(error)
            continue
        found.add(key)
        if isinstance(stored, PageReceipt):
            sites.add(key[:4] + stored.site)
    named = set(_named(store))
    for key in sorted((named | sites) - found):
        if store.get(key) is None:
            yield f"store: the receipt {key[4:].hex()} is missing, although a page refers to it"


def _named(store: KeyValue) -> Iterator[bytes]:
    """Yield the key of each receipt to which a capture or page record refers. Skip damaged captures and records."""
    for key, value in scan_prefix(store, CAPTURE):
        with suppress(DamageError):
            if digest := unpack_capture(key, value).receipt:
                yield receipt_key(fingerprint_of(key), digest)
    for key, value in scan_prefix(store, PAGE):
        with suppress(DamageError):
            if digest := unpack_record(key, value).receipt:
                yield receipt_key(fingerprint_of(key), digest)


def broken(store: KeyValue) -> Iterator[bytes]:
    """Yield the keys of receipts that cannot be decoded, or whose content does not match their digest."""
    for key, value in scan_prefix(store, RECEIPT):
        try:
            unpack(key, value)
        except DamageError:
            yield key


def of_record(record: reading.Record) -> ReceiptBlock | None:
    """Return the receipt in a WARC record, or None if there is none or if its content does not match its name."""
    uri = record.fields.get("warc-target-uri", "")
    if record.kind != "metadata" or not uri.startswith(_URI):
        return None
    block = read_block(record.block)
    return block if block is not None and packed(block.receipt)[0].hex() == uri.removeprefix(_URI) else None


def missing(store: KeyValue, fingerprint: int, block: ReceiptBlock) -> Iterator[tuple[bytes, bytes]]:
    """Yield the (key, value) pairs of a page's receipt that the store lacks."""
    values: tuple[Stored, ...] = (block.receipt, block.site)
    for value in values:
        if (item := put_once(store, fingerprint, *packed(value))) is not None:
            yield item
