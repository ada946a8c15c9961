"""Describes consent receipts in words and as plain data.

`why`, `get --headers`, the page server, the Python API and exports use these descriptions.
"""

from typing import Any

import msgspec

from crawler.clock import iso_time
from crawler.consent.receipts import Receipt, SiteFile, SiteStatements, load
from crawler.consent.resolving import Consent
from crawler.consent.stamping import load_whole
from crawler.consent.statements import USES
from crawler.errors import DamageError
from crawler.records import Capture, PageRecord
from crawler.storage.kv import KeyValue, unseal


def in_plain(store: KeyValue, fingerprint: int, copy: Capture | PageRecord) -> dict[str, Any]:
    """Return the receipt of a copy, or of the last fetch of a page, as plain data; {} if there is none to read."""
    try:
        found = load_whole(store, fingerprint, copy.receipt)
    except DamageError:
        return {}
    if found is None:
        return {}
    receipt, site = found
    return {
        **_answers(receipt, copy.receipt),
        "decided_by": sources(receipt.uses),
        "robots": _robots(store, receipt, site, copy.fetched_at),
        "page": [{"field": name, "value": value} for name, value in receipt.fields]
        + [{"meta": name, "value": value} for name, value in receipt.metas],
        "site": [{"source": source, "text": text} for source, text in receipt.deciding],
        "files": [_file(each) for each in site.files],
        "complete": receipt.complete,
        "token": site.token,
    }


def _answers(receipt: Receipt, digest: bytes) -> dict[str, str]:
    answers = {use: str(getattr(receipt.uses, use).preference) for use in USES}
    return {"receipt": digest.hex(), **answers, "key_id": receipt.key_id}


def stored_header_text(store: KeyValue, fingerprint: int, digest: bytes) -> str:
    """Return `header_text` of a stored receipt; "" if there is no receipt, or if it cannot be read."""
    try:
        receipt = load(store, fingerprint, digest, Receipt)
    except DamageError:
        return ""
    return "" if receipt is None else header_text(_answers(receipt, digest))


def header_text(consent: dict[str, Any]) -> str:
    """Return the value of `X-Consent`: the answers, the receipt, and the id of the key that signed the request."""
    answers = ", ".join(f"{use.replace('_', '-')}={consent[use]}" for use in USES)
    key = f"; key={consent['key_id']}" if consent["key_id"] else ""
    return f"{answers}; receipt={consent['receipt']}{key}"


def sources(uses: Consent) -> dict[str, str]:
    """Return, for each use whose answer is known, the source that decided this answer."""
    return {use: source for use in USES if (source := getattr(uses, use).source)}


def _robots(store: KeyValue, receipt: Receipt, site: SiteStatements, fetched_at: float) -> dict[str, Any]:
    if not site.robots_url:
        return {}
    said = {
        "url": site.robots_url,
        "fetched_at": iso_time(site.robots_at),
        "age": round(fetched_at - site.robots_at, 1),  # at the instant at which the page was fetched
        "status": site.robots_status,
        "sha256": site.robots_digest.hex(),
        "group": site.group,
        "rule": receipt.rule,
    }
    value = store.get(site.robots_record) if site.robots_record else None
    if value is not None:
        place = msgspec.msgpack.decode(unseal(site.robots_record, value), type=Capture)
        said |= {"warc_file": place.segment, "warc_offset": place.offset}
    return said


def _file(file: SiteFile) -> dict[str, Any]:
    said = {"kind": file.kind, "url": file.url, "fetched_at": iso_time(file.at), "status": file.status}
    return said | {"sha256": file.digest.hex(), "problem": file.problem}
