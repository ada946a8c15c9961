"""Defines the four uses about which sites make statements, and how several statements are combined.

A statement allows a use, refuses it, or does not mention it. If two statements of equal rank disagree,
the use is refused (draft-ietf-aipref-vocab, "Combining Preferences").
"""

import enum
from collections.abc import Iterable

import msgspec

from crawler.robots.rules import STATEMENT_OCTETS_MAX, STATEMENTS_MAX

# longest header or robots.txt line that is read; few servers send longer headers
FIELD_OCTETS_MAX = STATEMENT_OCTETS_MAX
# maximum number of statements of one kind in one answer or file; most sites send one or two
LINES_MAX = STATEMENTS_MAX
# maximum number of values whose meaning is cached, because the pages of a site repeat them; at most 2 MiB
MEANINGS_MAX = 256


class Preference(enum.StrEnum):
    """A site's statement about one use of its pages: allowed, forbidden, or not mentioned."""

    ALLOW = "y"
    REFUSE = "n"
    UNKNOWN = "unknown"


ALLOW, REFUSE, UNKNOWN = Preference.ALLOW, Preference.REFUSE, Preference.UNKNOWN


class Preferences(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A site's statements about four uses. Each use is allowed, forbidden, or not mentioned."""

    search: Preference = UNKNOWN
    ai_input: Preference = UNKNOWN
    train_ai: Preference = UNKNOWN
    tdm: Preference = UNKNOWN


USES: tuple[str, ...] = Preferences.__struct_fields__
NOTHING_SAID = Preferences()
_STRENGTH = {UNKNOWN: 0, ALLOW: 1, REFUSE: 2}


class Statement(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The statement of one source about a page: the raw text, and its meaning."""

    raw: tuple[str, ...] = ()
    preferences: Preferences = NOTHING_SAID


def strictest(answers: Iterable[Preference]) -> Preference:
    """Return the most restrictive answer: a refusal if there is one, else a permission, else unknown."""
    return max(answers, key=_STRENGTH.__getitem__, default=UNKNOWN)


def combined(statements: Iterable[Preferences]) -> Preferences:
    """Combine several statements: return the most restrictive answer for each use."""
    every = [each for each in statements if each is not NOTHING_SAID]
    if len(every) < 2:
        return every[0] if every else NOTHING_SAID
    return Preferences(*(strictest(getattr(each, use) for each in every) for use in USES))


def bounded(raw_values: Iterable[bytes]) -> tuple[tuple[str, ...], bool]:
    """Return the values as text, and whether all values are within the limits.

    Values beyond the limits are cut or dropped. The caller must then treat the answers as unknown, because
    the part that was cut might contain a refusal.
    """
    kept: list[str] = []
    for value in raw_values:
        if len(kept) == LINES_MAX:
            return tuple(kept), False
        kept.append(value[:FIELD_OCTETS_MAX].decode("latin-1"))
        if len(value) > FIELD_OCTETS_MAX:
            return tuple(kept), False
    return tuple(kept), True
