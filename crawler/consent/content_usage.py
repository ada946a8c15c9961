"""Reads Content-Usage from header fields and robots.txt (draft-ietf-aipref-attach, draft-ietf-aipref-vocab).

The value is a dictionary as in structured fields (RFC 9651, 3.2). Keys are case-sensitive. The last of
several equal keys counts. Parameters are ignored. Values other than the tokens `y` and `n` have no meaning.
If the dictionary cannot be parsed, every use is unknown. Several header lines form one dictionary (RFC 9651,
4.2).

    Content-Usage: train-ai=n, search=y          header
    Content-Usage: /archive/ train-ai=n          robots.txt, in a group; the path may be absent
"""

from collections.abc import Iterable
from functools import lru_cache

import msgspec

from crawler.consent.paths import by_path
from crawler.consent.statements import (
    ALLOW,
    FIELD_OCTETS_MAX,
    MEANINGS_MAX,
    NOTHING_SAID,
    REFUSE,
    UNKNOWN,
    Preferences,
    bounded,
)

PARSER = "content-usage/1"
# Maps labels of draft-ietf-aipref-vocab to our names. The draft demands that other labels are ignored.
_LABELS = {"search": "search", "ai-use": "ai_input", "train-ai": "train_ai"}
_ANSWERS = {"y": ALLOW, "n": REFUSE}


class ContentUsage(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The Content-Usage that applies to one answer or one path: the raw lines and their meaning."""

    raw: tuple[str, ...] = ()
    preferences: Preferences = NOTHING_SAID
    parser: str = PARSER


def read_usage_header(values: Iterable[bytes]) -> ContentUsage:
    """Return the meaning of the Content-Usage fields of one answer."""
    raw, complete = bounded(values)
    joined = ", ".join(raw)
    return ContentUsage(
        raw, _meaning(joined) if complete and len(joined) <= FIELD_OCTETS_MAX else NOTHING_SAID
    )


def read_usage_rules(lines: Iterable[str], target: str) -> ContentUsage:
    """Return the meaning of a robots.txt group's Content-Usage lines for `target` (path and query).

    The line with the longest matching path decides. If several lines have this path, the most restrictive
    answer counts.
    """
    return ContentUsage(*by_path(lines, target, _meaning))


@lru_cache(MEANINGS_MAX)
def _meaning(text: str) -> Preferences:
    import http_sf  # imported here because few sites send the field

    try:
        members = http_sf.parse(text.encode("latin-1"), tltype="dictionary")
    except (http_sf.StructuredFieldError, ValueError, OverflowError):
        return NOTHING_SAID
    assert isinstance(members, dict)
    found = {use: members.get(label) for label, use in _LABELS.items()}
    values = {use: each[0] if isinstance(each, tuple) else each for use, each in found.items()}
    return Preferences(
        **{
            use: _ANSWERS.get(str(value), UNKNOWN) if isinstance(value, http_sf.Token) else UNKNOWN
            for use, value in values.items()
        }
    )
