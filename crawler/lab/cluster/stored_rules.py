"""The rules by which the judge checks the stores of the simulated processes.

The records in a store must agree with the archive, and with the paths of links that lead from the seed to the
pages.
"""

import gzip
import zlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from crawler.errors import DamageError
from crawler.lab.cluster.judge_notes import Notes
from crawler.lab.cluster.synthetic_web import SyntheticWeb
from crawler.pages.segments import segment_path
from crawler.process.opening.stages import Stages
from crawler.records import Capture, PageRecord


class Stored(msgspec.Struct):
    """The records and captures that a process had committed in its folder when it ended.

    `originals` holds the captures to which revisits refer, including those that a reshard copied from other
    processes.
    """

    folder: Path
    records: dict[int, PageRecord]
    captures: dict[bytes, Capture]
    originals: dict[bytes, Capture]

    @classmethod
    def of(cls, stages: Stages) -> "Stored":
        """Read the records and captures from the open store."""
        captures = dict(stages.pages.stored_captures())
        named = {each.refers_to for each in captures.values() if each.kind == "revisit"}
        originals = {key: found for key in named if (found := stages.pages.capture_at(key)) is not None}
        return cls(stages.pages.folder, dict(stages.pages.all_records()), captures, originals)


def judge_stored(
    notes: Notes, web: SyntheticWeb, stored: dict[str, Stored], announced: Collection[str]
) -> None:
    """Record a violation for each capture or record that contradicts the archive or another record.

    `announced` holds the URLs for which signals were sent.
    """
    for name, each in stored.items():
        for key, capture in each.captures.items():
            if wrong := _flaw_of(each, key, capture):
                notes.add("misfiled", f"{name}: {capture.kind} of {capture.url}: {wrong}")
    least = {web.url(page): depth for page, depth in enumerate(web.depths(announced))}
    _judge_depths(
        notes, least, {key: record for each in stored.values() for key, record in each.records.items()}
    )


def _flaw_of(stored: Stored, key: bytes, capture: Capture) -> str:
    """Return a description of the error in a capture, or "" if there is none."""
    try:
        with segment_path(stored.folder, capture.segment).open("rb") as file:
            file.seek(capture.offset)
            record = gzip.decompress(file.read(capture.length))
    except (DamageError, OSError, EOFError, zlib.error) as error:
        return f"{capture.segment} at {capture.offset} cannot be read: {error!r}"
    head = record.partition(b"\r\n\r\n")[0]
    if f"WARC-Target-URI: {capture.url}".encode() not in head:
        return f"{capture.segment} at {capture.offset} holds another URL"
    if f"WARC-Type: {capture.kind}".encode() not in head:
        return f"{capture.segment} at {capture.offset} is no {capture.kind}"
    if capture.kind == "revisit":
        original = stored.originals.get(capture.refers_to)
        if original is None or original.kind != "response":
            return "it refers to no response"
        if wrong := _flaw_of(stored, capture.refers_to, original):
            return f"it refers to a response of {original.url}: {wrong}"
        if original.digest != capture.digest:
            return f"it refers to a response of {original.url} with another payload"
    return ""


def _judge_depths(notes: Notes, least: dict[str, float], records: dict[int, PageRecord]) -> None:
    for record in records.values():
        via = records.get(record.via)
        if via is not None and not record.redirects and record.depth > via.depth + 1:
            notes.add(
                "misrecorded", f"{record.url}: depth {record.depth}, found on {via.url} at depth {via.depth}"
            )
        elif via is not None and record.redirects and _hop_flaw(record, via):
            notes.add("misrecorded", f"{record.url}: {_hop_flaw(record, via)}, redirected from {via.url}")
        elif record.depth < (shortest := least.get(record.url, 0)):
            notes.add("misrecorded", f"{record.url}: depth {record.depth}, the shortest way is {shortest:g}")


def _hop_flaw(record: PageRecord, via: PageRecord) -> str:
    """Return a description of the error in `record`, or "" if there is none.

    `record` is the target of the redirect `via`.
    """
    if not via.location:
        return "no redirect leads to it"
    if record.redirects != via.redirects + 1:
        return f"{record.redirects} hops, after {via.redirects}"
    return f"depth {record.depth} after {via.depth}" if record.depth > via.depth else ""
