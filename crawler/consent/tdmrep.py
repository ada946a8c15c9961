"""Reads the TDM Reservation Protocol (W3C Community Group, final report of 10 May 2024).

`tdm-reservation: 1` refuses the use `tdm`, 0 allows it, and other values are ignored. `tdm-policy` is the URL of
the site's terms. If the header and a meta element disagree, the rights count as reserved. `consent/README.md`,
"Sources", says where they are stated.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from crawler.consent.paths import longest
from crawler.consent.statements import (
    ALLOW,
    FIELD_OCTETS_MAX,
    LINES_MAX,
    REFUSE,
    UNKNOWN,
    Preference,
    Preferences,
    Statement,
    bounded,
    strictest,
)

PARSER = "tdmrep/1"
FILE_OCTETS_MAX = 512_000  # limit in bytes, as for robots.txt
ENTRIES_MAX = 1000  # maximum number of entries of tdmrep.json; each is compared with every page of the site
_ANSWERS = {"0": ALLOW, "1": REFUSE}


class TdmEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One entry of tdmrep.json. `reservation` is the value as it was written."""

    location: str
    reservation: str
    policy: str = ""


class TdmFile(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The entries of a tdmrep.json. `problem` is the reason why the file could not be read."""

    entries: tuple[TdmEntry, ...] = ()
    problem: str = ""
    parser: str = PARSER


class TdmReservation(Statement, frozen=True, gc=False, array_like=True):
    """The reservation for one page: the values of `tdm-reservation`, their meaning, and the values of `tdm-policy`."""

    policies: tuple[str, ...] = ()


def read_tdm_file(body: bytes) -> TdmFile:
    """Return the entries of a tdmrep.json, except malformed ones."""
    if len(body) > FILE_OCTETS_MAX:
        return TdmFile(problem=f"longer than {FILE_OCTETS_MAX} bytes")
    try:
        found = msgspec.json.decode(body)
    except (ValueError, RecursionError):
        return TdmFile(problem="not JSON")
    if not isinstance(found, list):
        return TdmFile(problem="not a list")
    if len(found) > ENTRIES_MAX:
        return TdmFile(problem=f"more than {ENTRIES_MAX} entries")
    return TdmFile(tuple(entry for each in found if (entry := _entry(each)) is not None))


def read_tdm_page(reservations: Iterable[bytes], policies: Iterable[bytes]) -> TdmReservation:
    """Return the reservation in a page's header fields and meta elements.

    Args:
        reservations: the values named `tdm-reservation`.
        policies: the values named `tdm-policy`.
    """
    raw, complete = bounded(reservations)
    terms, _ = bounded(policies)
    answer = strictest(map(_answer, raw)) if complete else UNKNOWN
    return TdmReservation(raw, Preferences(tdm=answer), terms)


def reservation_for(file: TdmFile, page: TdmReservation, target: str) -> TdmReservation:
    """Return the reservation that applies to `target`: the page's own reservation if it has one, else the file's.

    In the file, the entry with the longest matching location decides. If several locations are equally long,
    the most restrictive entry decides.
    """
    if page.raw or not file.entries:
        return page
    deciding = [file.entries[at] for at in longest((each.location for each in file.entries), target)]
    return TdmReservation(
        tuple(each.reservation for each in deciding),
        Preferences(tdm=strictest(_answer(each.reservation) for each in deciding)),
        page.policies or tuple(each.policy for each in deciding if each.policy),
    )


def _entry(found: Any) -> TdmEntry | None:
    if not isinstance(found, dict):
        return None
    location, policy = found.get("location"), found.get("tdm-policy", "")
    reservation = found.get("tdm-reservation")
    if isinstance(reservation, bool) or not isinstance(reservation, int | str):
        return None
    if not isinstance(location, str) or not location or len(location) > FIELD_OCTETS_MAX:
        return None
    terms = policy[:FIELD_OCTETS_MAX] if isinstance(policy, str) else ""
    return TdmEntry(location, str(reservation)[:LINES_MAX], terms)


def _answer(value: str) -> Preference:
    return _ANSWERS.get(value.strip(" \t"), UNKNOWN)
