"""The refresh state in the store: one record per page, site and directory, from which the schedule is rebuilt.

`frontier/refresh/README.md`, "State", lists the records. Keys are 8 bytes, big-endian. The first two bytes
are the bucket. The records of a fetch are written with the commit group that ends the fetch. The records of
pages that only a signal touched are written with the next group. Deadlines are not stored: they are computed
from the records on opening. Only the instant at which a failed or recalled page is tried again is stored, as the
time since the last crawl.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, product
from typing import NamedTuple

import numpy as np
from isal.isal_zlib import crc32

from crawler.errors import DamageError
from crawler.freshness.recalibration import Recalibration
from crawler.freshness.seasons import COLUMNS as RHYTHM_NUMBERS
from crawler.freshness.seasons import EARLIER_COLUMNS as EARLIER_RHYTHM_NUMBERS
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.clock_repair import SetBack, at_start
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import BY_LEVEL, policies_of
from crawler.storage import keys
from crawler.storage.kv import SEAL_BYTES, VALUE_VERSION, Batch, KeyValue, scan_prefix, seal, unseal

_key = struct.Struct(">Q")
_PAGE = struct.Struct("<QQdffIfB")
_PAGE_TYPE = np.dtype(
    [
        ("host", "<u8"), ("directory", "<u8"), ("crawled", "<f8"), ("changes", "<f4"), ("watched", "<f4"),
        ("signals", "<u4"), ("importance", "<f4"), ("state", "u1"),
    ]
)  # fmt: skip
assert _PAGE_TYPE.itemsize == _PAGE.size
_ROW_TYPE = np.dtype([("version", "u1"), ("checksum", "<u4"), *_PAGE_TYPE.descr])  # with the seal
assert _ROW_TYPE.itemsize == SEAL_BYTES + _PAGE.size
_SITE_NUMBERS = 41
_SITE = struct.Struct(f"<{_SITE_NUMBERS}d")
# the record of a site with a weekly rhythm
_PACED_SITE = struct.Struct(f"<{_SITE_NUMBERS + RHYTHM_NUMBERS}d")
# Earlier versions did not count signals, did not keep sums for pages with bad signals, or had no correction of
# P[fresh] by site. In their records, the rhythm of a site follows after this many values.
_EARLIER = (31, 33, 39)
_EARLIER_SITES = [
    *(8 * (numbers + rhythm) for numbers in _EARLIER for rhythm in (0, EARLIER_RHYTHM_NUMBERS[0])),
    *(8 * (_SITE_NUMBERS + rhythm) for rhythm in EARLIER_RHYTHM_NUMBERS),
]
# The form stored by versions that derived the recall from announced changes.
_SITE_UNEXPOSED = struct.Struct("<28d")
# the indexes in `site_state` of the instant of the change counts and of the instant of the counts of new pages
_SITE_INSTANTS = [2, 27]
_DIRECTORY = struct.Struct("<Q6d")
_HUB = struct.Struct("<3f")  # appended to the record of a hub
# like `_HUB`, in records of versions that did not count the links of a first copy
_UNCOUNTED_HUB = struct.Struct("<2f")
_TRUST = struct.Struct("<b")  # appended to the record of a page whose signals were judged
# appended to the record of a page that waits after a failure or a recall: the time from the last crawl to the retry
_RETRY = struct.Struct("<f")
# appended to the record of a page that may be restless, or whose rate may have turned
_UNREST = struct.Struct("<h")
# length of what follows the row of a page in its record -> its parts
_PAGE_PARTS = {
    sum(part.size for part in parts): parts
    for parts in (
        *(
            tuple(part for part in some if part is not None)
            for some in product((None, _HUB), (None, _RETRY), (None, _UNREST), (None, _TRUST))
        ),
        (_UNCOUNTED_HUB,),
        (_UNCOUNTED_HUB, _TRUST),
    )
}
_NUMBER = struct.Struct("<d")
BIASES = 8  # numbers of `Records.bias`
_BIAS = struct.Struct(f"<{BIASES}d")
# Earlier versions did not count changes without a signal separately, had no factor of variations, or knew no restless
# pages. Their records have this many values.
_EARLIER_BIASES = (2, 4, 6)
_SET_BACK = struct.Struct("<3d")
_CHUNK = 4096  # number of pages added at once on opening


def stage(schedule: Schedule | Arms, page: int, batch: Batch) -> None:
    """Put four records into a batch: the records of a page, of its site, of its directory and of the whole schedule.

    A guessed level or revisit interval is not stored: the next run would take it for a measured one. Only a level
    that is a gain in freshness is stored, because the next run may have another policy.
    """
    stage_page(schedule, page, batch)
    host_key = stage_site(schedule, schedule.host_of(page), batch)
    directory_key, counts = schedule.records.directory_state(page)
    record = _DIRECTORY.pack(host_key, *counts)
    batch.put(keys.REFRESH_DIRECTORY + _key.pack(directory_key), seal(record))
    if schedule.pace.level_is_known and _has_gain(schedule):
        batch.put(keys.REFRESH_LEVEL, number_record(schedule.pace.level))
    if (revisit := schedule.pace.revisit) > 0.0:
        batch.put(keys.REFRESH_REVISIT, number_record(revisit))
    batch.put(keys.REFRESH_BIAS, bias_record(schedule.records.bias))


def stage_recalibration(recalibration: Recalibration, batch: Batch) -> None:
    """Put the correction of P[fresh] into a batch."""
    numbers = recalibration.numbers
    batch.put(keys.REFRESH_HAZARD, seal(struct.pack(f"<{len(numbers)}d", *numbers)))


def stored_recalibration(store: KeyValue) -> Recalibration:
    """Return the stored correction of P[fresh]; if none was ever stored, return an initial correction without effect."""
    value = store.get(keys.REFRESH_HAZARD)
    if value is None:
        return Recalibration()
    payload = unseal(keys.REFRESH_HAZARD, value)
    return Recalibration(struct.unpack(f"<{len(payload) // 8}d", payload))


def stage_tilt(tilt: float, batch: Batch) -> None:
    """Put the tilt of this process, the relative weight of its pages, into a batch."""
    batch.put(keys.REFRESH_TILT, number_record(tilt))


def stored_tilt(store: KeyValue) -> float:
    """Return the stored tilt; 1 if it was never stored."""
    return stored_number(store, keys.REFRESH_TILT) or 1.0


def stored_number(store: KeyValue, key: bytes) -> float:
    """Return the stored level or revisit interval; 0 if it was never stored."""
    value = store.get(key)
    return 0.0 if value is None else float(_NUMBER.unpack(unseal(key, value))[0])


def number_record(number: float) -> bytes:
    """Return the stored value of a level or revisit interval."""
    return seal(_NUMBER.pack(number))


def stored_bias(store: KeyValue) -> tuple[float, ...] | None:
    """Return the numbers of `Records.bias`, or fewer in a record of an earlier version; None without a record."""
    if (value := store.get(keys.REFRESH_BIAS)) is None:
        return None
    numbers = unseal(keys.REFRESH_BIAS, value)
    count = len(numbers) // _NUMBER.size
    return (struct.Struct(f"<{count}d") if count in _EARLIER_BIASES else _BIAS).unpack(numbers)


def bias_record(numbers: Sequence[float]) -> bytes:
    """Return the stored value of the numbers of `Records.bias`."""
    return seal(_BIAS.pack(*numbers))


def stage_site(schedule: Schedule | Arms, host: int, batch: Batch) -> int:
    """Put the record of a site into a batch, and return the key of the record."""
    host_key, numbers = schedule.records.site_state(host)
    batch.put(
        keys.REFRESH_SITE + _key.pack(host_key),
        seal((_SITE if len(numbers) == _SITE_NUMBERS else _PACED_SITE).pack(*numbers)),
    )
    return host_key


def _has_gain(schedule: Schedule | Arms) -> bool:
    """Return whether the level is a gain in freshness. The level of other policies is an age or has no meaning."""
    return any(policy in BY_LEVEL for policy in policies_of(schedule.settings))


def stage_page(schedule: Schedule | Arms, page: int, batch: Batch) -> None:
    """Put the record of a page into a batch, without the records of its site and its directory."""
    fingerprint, *row = schedule.records.page_state(page)
    found, watched, links = schedule.records.hub_state(page)
    more = _HUB.pack(found, watched, links) if found > 0.0 or links > 0.0 else b""
    if retry := schedule.records.retry_state(page):
        more += _RETRY.pack(retry)
    if unrest := schedule.records.unrest_state(page):
        more += _UNREST.pack(unrest)
    if trust := schedule.records.trust_state(page):
        more += _TRUST.pack(trust)
    batch.put(keys.REFRESH + _key.pack(fingerprint), seal(_PAGE.pack(*row) + more))
    if (run := schedule.set_back) is not None:
        schedule.set_back = run.extended(row[2])
        batch.put(keys.REFRESH_SET_BACK, seal(_SET_BACK.pack(*schedule.set_back)))


def unstage_page(fingerprint: int, batch: Batch) -> None:
    """Delete the record of a page that has left the schedule."""
    batch.delete(keys.REFRESH + _key.pack(fingerprint))


class Loaded(NamedTuple):
    """The number of loaded pages.

    `lead` is the number of seconds by which the latest stored crawl time is in the future, or 0.0.
    """

    pages: int
    lead: float


def load(schedule: Schedule | Arms, store: KeyValue, now: float) -> Loaded:
    """Load all stored records into an empty schedule.

    An instant in the future was stored while the clock was ahead, or the clock is behind now. Such an instant is
    replaced by `now`. Otherwise the page would not be fetched again until the clock has passed the instant.

    If the clock was ahead, a crawl that found a page unchanged added the error of the clock to T, the time
    for which the page was watched. `load` subtracts this error from T. If the error is longer than T, it was
    never added, so T is kept: a page that lost its T, but not its changes, would seem to change too fast to
    be worth a fetch.

    If the clock was behind in an earlier run and is right now, the instants of that run are corrected
    (`clock_repair.py`).

    Raises:
        DamageError: a record is damaged.
    """
    if _has_gain(schedule) and (level := stored_number(store, keys.REFRESH_LEVEL)) > 0.0:
        schedule.pace.level = level
    if (revisit := stored_number(store, keys.REFRESH_REVISIT)) > 0.0:
        schedule.pace.revisit = revisit
    if (biases := stored_bias(store)) is not None:
        schedule.records.bias = biases
    set_back, lead = _stored_set_back(store, now), 0.0
    ended = set_back if set_back is not None and set_back.has_ended(now) else None
    for key, payload in _records(
        store, keys.REFRESH_SITE, _SITE.size, _PACED_SITE.size, _SITE_UNEXPOSED.size, *_EARLIER_SITES
    ):
        site = _site_numbers(payload)
        site[_SITE_INSTANTS] = _corrected(site[_SITE_INSTANTS], now, ended)
        schedule.records.restore_site(key, site)
    for key, payload in _records(store, keys.REFRESH_DIRECTORY, _DIRECTORY.size):
        host_key, observed, expected, counted_at, found, watched, found_at = _DIRECTORY.unpack(payload)
        counted_at, found_at = _corrected(np.array((counted_at, found_at)), now, ended).tolist()
        counts, news = (observed, expected, counted_at), (found, watched, found_at)
        schedule.records.restore_directory(key, host_key, counts, news)
    records = scan_prefix(store, keys.REFRESH)
    while chunk := list(islice(records, _CHUNK)):
        lead = max(lead, _load_pages(schedule, chunk, now, ended))
        # `_load_pages` computes the revisit interval anew if the schedule has a rate. But a program that only
        # reads the store may have other settings than the crawl. So the stored interval replaces the computed
        # one.
        if revisit > 0.0:
            schedule.pace.revisit = revisit
    schedule.set_back = at_start(set_back, now, lead)
    schedule.renew()
    return Loaded(len(schedule), lead)


def _site_numbers(payload: bytes) -> np.ndarray:
    """Return the numbers of a site's record, with zeros for the numbers that the record's version did not have.

    If the record has no exposure, the exposure is set so that the recall stays the same.
    """
    numbers = np.frombuffer(payload, "<f8")
    if len(payload) == _SITE_UNEXPOSED.size:
        numbers = np.append(numbers, numbers[3:11].sum() + numbers[19])
    for earlier in _EARLIER:
        if len(payload) in (8 * earlier, 8 * (earlier + EARLIER_RHYTHM_NUMBERS[0])):
            numbers = np.insert(numbers, earlier, np.zeros(_SITE_NUMBERS - earlier))
    return np.append(numbers, np.zeros(max(_SITE_NUMBERS - len(numbers), 0)))


def _stored_set_back(store: KeyValue, now: float) -> SetBack | None:
    """Return the latest run whose clock was behind, as known when a run begins at `now`; None if there was none."""
    value = store.get(keys.REFRESH_SET_BACK)
    if value is None:
        return None
    return SetBack(*_SET_BACK.unpack(unseal(keys.REFRESH_SET_BACK, value))).settled(now)


def _corrected(instants: np.ndarray, now: float, ended: SetBack | None) -> np.ndarray:
    """Return stored instants of sites and directories: those of the ended run corrected, and none in the future."""
    return np.minimum(instants if ended is None else ended.corrected(instants), now)


def _load_pages(
    schedule: Schedule | Arms, chunk: list[tuple[bytes, bytes]], now: float, ended: SetBack | None
) -> float:
    """Add the pages of stored records.

    `ended` is an earlier run whose clock was behind. The instants that it stored are corrected. Return the
    largest number of seconds by which a stored crawl time is in the future.
    """
    fingerprints, rows, longer = _page_rows(chunk)
    crawled = rows["crawled"] if ended is None else np.minimum(ended.corrected(rows["crawled"]), now)
    leads = np.maximum(crawled - now, 0.0)
    watched_for = rows["watched"] - np.where(rows["watched"] >= leads, leads, 0.0)
    numbers_of = schedule.add_many(
        fingerprints, rows["host"], rows["directory"], crawled - leads, rows["importance"], now,
        changes=rows["changes"], watched=watched_for, signals=rows["signals"], states=rows["state"],
    )  # fmt: skip
    for at in longer:
        _restore_parts(schedule, int(numbers_of[at]), chunk[at][1][_ROW_TYPE.itemsize :], now)
    return float(leads.max())


def _restore_parts(schedule: Schedule | Arms, page: int, more: bytes, now: float) -> None:
    """Restore what follows the row of a page in its record."""
    for part in _PAGE_PARTS[len(more)]:
        numbers, more = part.unpack_from(more), more[part.size :]
        if part is _HUB:
            schedule.records.restore_hub(page, *numbers)
        elif part is _UNCOUNTED_HUB:
            schedule.records.restore_hub(page, *numbers, 0.0)
        elif part is _RETRY:
            schedule.records.restore_retry(page, *numbers, now)
        elif part is _UNREST:
            schedule.records.restore_unrest(page, *numbers)
        else:
            schedule.records.restore_trust(page, *numbers)


def _page_rows(chunk: list[tuple[bytes, bytes]]) -> tuple[np.ndarray, np.ndarray, list[int]]:
    """Return the fingerprints and rows of stored pages, and the positions of the records that hold more than a row.

    Versions and checksums are compared by column; this takes a third of the time that calls of `unseal` would
    take.
    """
    size, page = _ROW_TYPE.itemsize, len(keys.REFRESH) + _key.size
    lengths = np.fromiter((len(value) for _, value in chunk), np.int64, len(chunk))
    longer = np.flatnonzero(lengths != size).tolist()
    checksums = np.fromiter((crc32(value[SEAL_BYTES:]) for _, value in chunk), np.uint32, len(chunk))
    whole = all(len(key) == page for key, _ in chunk)
    whole = whole and bool(np.isin(lengths[longer] - size, list(_PAGE_PARTS)).all())
    if whole:
        rows = np.frombuffer(b"".join([value[:size] for _, value in chunk]), _ROW_TYPE)
        whole = bool((rows["version"] == VALUE_VERSION).all() and (rows["checksum"] == checksums).all())
    if not whole:
        for _ in _checked(chunk, keys.REFRESH, *(_PAGE.size + more for more in _PAGE_PARTS)):
            pass
        raise RuntimeError(
            "a page record is damaged if checked by column, but not if checked alone; please report this"
        )
    names = b"".join([key[-_key.size :] for key, _ in chunk])
    return np.frombuffer(names, ">u8").astype(np.uint64), rows, longer


def _records(store: KeyValue, prefix: bytes, *sizes: int) -> Iterator[tuple[int, bytes]]:
    """Yield (key, payload) of every record with a prefix; payloads must have one of `sizes`."""
    return _checked(scan_prefix(store, prefix), prefix, *sizes)


def _checked(
    records: Iterable[tuple[bytes, bytes]], prefix: bytes, *sizes: int
) -> Iterator[tuple[int, bytes]]:
    for key, value in records:
        payload = unseal(key, value)
        if len(key) != len(prefix) + 8 or len(payload) not in sizes:
            raise DamageError(f"store: refresh record {key!r} has {len(payload)} bytes")
        yield _key.unpack_from(key, len(prefix))[0], payload


def stage_signalled(schedule: Schedule | Arms, pages: Iterable[int], batch: Batch) -> None:
    """Put into a batch the records of the pages that signals have touched, and the records of their sites."""
    hosts = set()
    for page in pages:
        stage_page(schedule, page, batch)
        hosts.add(schedule.host_of(page))
    for host in hosts:
        stage_site(schedule, host, batch)
