"""The steps of a withdrawal (`crawler withdraw`) in one process. `admin/withdrawal.py` runs each step in all processes.

    apply     read the rules again; from then on this process applies them
    count     count the copies that a rule covers
    detach    write again each copy that stays but is stored as a repetition of a covered copy (`pages/erasure.py`)
    erase     erase the covered copies

Each request for a long step examines only a portion of the store, so no request takes long. In the answer,
`next` is the key at which the next request must begin; "" means that the step is complete. All processes
receive the same request, so the request contains a key for each process.
"""

import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from crawler.errors import UsageError
from crawler.pages.captures import end_of, fingerprint_of, unpack_capture, unpack_record
from crawler.pages.erasure import Blanked, Erasing, list_bytes, listed_bytes
from crawler.pages.withdrawals import Withdrawal
from crawler.process.answering.explainer import Steps
from crawler.process.opening.process_parts import ProcessParts
from crawler.process.results.retired import retiring
from crawler.records import Capture
from crawler.storage import keys
from crawler.storage.commit import Change, Maker
from crawler.storage.kv import scan_prefix
from crawler.urls.canonical import hostname
from crawler.urls.fingerprint import Fingerprinter

# The counts in the answer, by step.
_STEPS = {"count": ("pages", "copies", "bytes"), "detach": ("copies",), "erase": ("pages", "copies", "bytes")}
COPIES_AT_ONCE = 64  # maximum number of copies that one `Change` rewrites
OPERATIONS_AT_ONCE = 2000  # maximum number of puts and deletes in one `Change`
BLOCK_BYTES = 4096
# maximum number of bytes that one `Change` overwrites: about 0.1 s in the writer thread
BYTES_AT_ONCE = 32 << 20
PAUSE_ENTRIES = 500  # number of entries examined between two pauses: about 5 ms


class Withdrawing:
    """Carries out the steps of a withdrawal in one process. `commit` queues a `Change`."""

    def __init__(self, parts: ProcessParts, commit: Callable[[Change | Maker], None]) -> None:
        self._name, self._now = parts.context.name, parts.context.clock.now
        self._pages, self._frontier, self._point = parts.pages, parts.frontier, parts.point
        self._url_filter, self._fingerprinter = parts.intake.filter, parts.fingerprinter
        self._commit = commit
        self._erasers = {
            keys.CAPTURE: self._erase_captures,
            keys.PAGE: self._erase_records,
            keys.ELSEWHERE: self._erase_places,
            keys.ERASING: self._blank,
        }

    def withdraw(
        self,
        step: str,
        rule: dict[str, Any] | None = None,
        begin: dict[str, str] | None = None,
        entries: int = 0,
    ) -> Steps:
        """Carry out a step for `rule` on about `entries` entries.

        `begin` maps the name of each process to the key from which it continues. If `entries` is 0,
        all entries are examined. This is meant for a crawl at rest, where changes are durable at once.
        """
        if step == "apply":
            return (yield from self._apply())
        if step not in _STEPS or rule is None:
            raise UsageError(f"withdraw: unknown step {step!r}")
        place = (begin or {}).get(self._name)
        if place == "":
            return {"process": self._name, "next": ""} | dict.fromkeys(_STEPS[step], 0)
        found = yield from getattr(self, f"_{step}")(rule_of(rule), _key(place or ""), entries or sys.maxsize)
        return {"process": self._name} | found

    def _apply(self) -> Steps:
        reloading = self._pages.withdrawals.reloading()
        next(reloading)  # from here on, the rules are in force
        self._url_filter.renew()
        yield from reloading
        # The answer is sent after this commit, which also makes all decisions durable that were made before
        # the new rules took effect.
        self._commit(Change())
        yield
        return {"process": self._name, "rules": len(self._pages.withdrawals.rules)}

    def _count(self, rule: Withdrawal, begin: bytes, entries: int) -> Steps:
        """Return the numbers of covered `pages` (URLs), `copies` and `bytes` in a portion of the captures."""
        pages, copies, size, next_key = 0, 0, 0, ""
        last = b""
        for number, (key, capture) in enumerate(self._part(rule, begin)):
            if number >= entries and key[:10] != last:  # all copies of a URL are counted in the same request
                next_key = key.hex()
                break
            if covers(rule, capture):
                copies += 1
                size += end_of(capture) - capture.offset
                pages += key[:10] != last
                last = key[:10]
            if number % PAUSE_ENTRIES == PAUSE_ENTRIES - 1:
                yield
        return {"pages": pages, "copies": copies, "bytes": size, "next": next_key}

    def _part(self, rule: Withdrawal, begin: bytes) -> Iterator[tuple[bytes, Capture]]:
        """Yield the captures in the rule's key range, beginning at `begin`. The rule may cover only some of them."""
        first, end = span(rule, keys.CAPTURE, self._fingerprinter)
        for key, capture in self._pages.stored_captures(begin or first):
            if key >= end:
                return
            yield key, capture

    # -- erasure

    def _detach(self, rule: Withdrawal, begin: bytes, entries: int) -> Steps:
        """Store again, in full, each copy that is stored only as a repetition of a covered copy.

        Queue the changes and count these copies.
        """
        erasing, copies, next_key = Erasing(self._pages, rule), 0, ""
        change = Change(sync=True)
        for number, (key, capture) in enumerate(self._pages.stored_captures(begin)):
            if number >= entries:
                next_key = key.hex()
                break
            if (detached := erasing.detached(key, capture)) is not None:
                copies += 1
                change.captures.append(detached)
            if len(change.captures) >= COPIES_AT_ONCE:
                self._commit(change)
                change = Change(sync=True)
            if number % PAUSE_ENTRIES == PAUSE_ENTRIES - 1:
                yield
        self._commit(change)
        return {"copies": copies, "next": next_key}

    def _erase(self, rule: Withdrawal, begin: bytes, entries: int) -> Steps:
        """Queue the changes that erase covered copies, their bytes, and the facts known about their URLs.

        Erasing has several phases. The family of the key `begin` determines the phase with which to continue.
        """
        counts = dict.fromkeys(_STEPS["erase"], 0)
        if not begin and rule.stops_fetches:
            yield from self._retire(rule)
        place = begin or keys.CAPTURE
        while place:
            family = place[:2]
            place = yield from self._erasers[family](rule, begin, entries, counts)
            # Continue with the next family only if nothing is queued, because the next family depends on the
            # changes to this one.
            if place[:2] == family or entries < sys.maxsize:
                break
            begin = place
        return counts | {"next": place.hex()}

    def _retire(self, rule: Withdrawal) -> Steps:
        """Drop the waiting URLs that the rule covers."""
        portions = retiring(self._frontier, self._now, rule.is_about, self._commit)
        yield from self._point.making()
        while next(portions, _END) is not _END:
            yield
            yield from self._point.making()

    def _erase_captures(self, rule: Withdrawal, begin: bytes, entries: int, counts: dict[str, int]) -> Steps:
        """Erase covered copies. If a URL has no other copy, also erase what is known about the URL."""
        erasing, now, seen, change = Erasing(self._pages, rule), self._now(), 0, Change(sync=True)
        grouped = itertools.groupby(self._part(rule, begin), key=lambda item: item[0][:10])
        for prefix, group in grouped:
            captures = list(group)
            if seen >= entries:
                self._commit(change)
                return captures[0][0]
            seen += len(captures)
            covered = [(key, capture) for key, capture in captures if erasing.covers(capture)]
            for key, capture in covered:
                erasing.erase_capture(key, capture, change)
                counts["bytes"] += end_of(capture) - capture.offset
            change.count("stored.captures", -len(covered))
            counts["copies"] += len(covered)
            counts["pages"] += bool(covered)
            if covered and len(covered) == len(captures):
                self._bury(erasing, rule, fingerprint_of(prefix), captures[0][1].url, now, change)
            if len(change.operations) >= OPERATIONS_AT_ONCE:
                self._commit(change)
                change = Change(sync=True)
            yield
        self._commit(change)
        return keys.PAGE if rule.stops_fetches else keys.ELSEWHERE

    def _bury(
        self, erasing: Erasing, rule: Withdrawal, fingerprint: int, url: str, now: float, change: Change
    ) -> None:
        erasing.bury(fingerprint, url, now, change)
        if not rule.stops_fetches:
            erasing.reset_page(fingerprint, change)
        elif erasing.forget_page(fingerprint, change):
            change.count("stored.records", -1)

    def _erase_records(self, rule: Withdrawal, begin: bytes, entries: int, counts: dict[str, int]) -> Steps:
        """Erase the records of covered URLs that have no copy."""
        erasing, now = Erasing(self._pages, rule), self._now()
        first, end = span(rule, keys.PAGE, self._fingerprinter)
        change = Change(sync=True)
        next_key = keys.ELSEWHERE
        for number, (key, value) in enumerate(self._pages.store.scan(max(begin, first), end)):
            if number >= entries:
                next_key = key
                break
            url = unpack_record(key, value).url
            if rule.is_about(url):
                self._bury(erasing, rule, int.from_bytes(key[2:], "big"), url, now, change)
            if number % PAUSE_ENTRIES == PAUSE_ENTRIES - 1:
                yield
        self._commit(change)
        return next_key

    def _erase_places(self, rule: Withdrawal, begin: bytes, entries: int, counts: dict[str, int]) -> Steps:
        """Delete the `v/` keys of covered responses, which another process stored before a reshard."""
        erasing, change = Erasing(self._pages, rule), Change(sync=True)
        for number, (key, value) in enumerate(scan_prefix(self._pages.store, keys.ELSEWHERE)):
            capture = unpack_capture(key, value)
            if erasing.covers(capture):
                change.delete(key)
                list_bytes(change, capture)
            if number % PAUSE_ENTRIES == PAUSE_ENTRIES - 1:
                yield
        self._commit(change)
        return keys.ERASING

    def _blank(self, rule: Withdrawal, begin: bytes, entries: int, counts: dict[str, int]) -> Steps:
        """Overwrite bytes that an erasure has listed.

        A block of `BLOCK_BYTES` counts as one of the `entries` of a portion, because it takes as long to
        overwrite a block as to examine an entry.
        """
        listed: dict[bytes, int] = {}
        size = 0
        for number, (key, length) in enumerate(listed_bytes(self._pages.store, begin)):
            if entries <= 0:
                self._commit_blanks(listed)
                return key
            if size >= BYTES_AT_ONCE:
                self._commit_blanks(listed)
                listed, size = {}, 0
            listed[key] = length
            size += length
            entries -= 1 + length // BLOCK_BYTES
            if number % PAUSE_ENTRIES == PAUSE_ENTRIES - 1:
                yield
        self._commit_blanks(listed)
        return b""

    def _commit_blanks(self, listed: dict[bytes, int]) -> None:
        change = Change(sync=True)
        change.captures.append(Blanked(listed))
        self._commit(change)


_END = object()


def _key(place: str) -> bytes:
    try:
        return bytes.fromhex(place)
    except ValueError:
        raise UsageError(
            f"withdraw: {place!r} is not a key in hex, as an earlier answer gave it in `next`"
        ) from None


def rule_of(plain: dict[str, Any]) -> Withdrawal:
    """Convert a rule from plain data.

    Raises:
        UsageError: the data is not a rule.
    """
    try:
        return msgspec.convert(plain, Withdrawal)
    except msgspec.ValidationError as error:
        raise UsageError(f"withdraw: {error}") from error


def covers(rule: Withdrawal, capture: Capture) -> bool:
    return rule.is_about(capture.url) and rule.covers(capture.fetched_at)


def span(rule: Withdrawal, prefix: bytes, fingerprinter: Fingerprinter) -> tuple[bytes, bytes]:
    """Return a range of keys in a family.

    It consists of whole buckets and contains the keys of all URLs that a rule covers.
    """
    host = rule.host or (hostname(f"http://{rule.prefix}") if rule.prefix else "")
    host = host or (hostname(rule.url) if rule.url else "")
    if not host:
        return keys.bucket_range(prefix, 0, keys.BUCKETS)
    buckets = [fingerprinter.bucket(host), fingerprinter.bucket(f"www.{host}")]
    return keys.bucket_range(prefix, min(buckets), max(buckets) + 1)
