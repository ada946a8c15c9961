"""Reads the statements that sites write as text (`consent/README.md`, "Sources").

    Content-Usage: train-ai=n, search=y                      header: several lines form one dictionary (RFC 9651)
    Content-Usage: /archive/ train-ai=n                      robots.txt, in a group; the path may be absent
    Content-Signal: search=yes, ai-input=yes, ai-train=no    header or robots.txt
    X-Robots-Tag: noai                                       header or meta element

`by_path` (`paths.py`) applies `usage_meaning` and `signal_meaning` to the lines of robots.txt. Content-Signal
has no strict grammar: case does not matter, members may be separated by commas, semicolons or blanks, and if
two members contradict each other, the refusal counts. `noai` and `noimageai` were introduced by DeviantArt,
without a specification.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from itertools import islice

from crawler.consent.statements import (
    ALLOW,
    FIELD_OCTETS_MAX,
    LINES_MAX,
    MEANINGS_MAX,
    NOTHING_SAID,
    REFUSE,
    UNKNOWN,
    Preferences,
    Statement,
    bounded,
    combined,
)
from crawler.extract.directives import directive_names

PARSERS = ("content-usage/1", "content-signal/1", "page-names/1")
# Maps labels of draft-ietf-aipref-vocab to our names. The draft demands that other labels are ignored.
_USAGE_LABELS = {"search": "search", "ai-use": "ai_input", "train-ai": "train_ai"}
_SIGNAL_LABELS = {
    "search": ("search",),
    "ai-input": ("ai_input",),
    "ai-train": ("train_ai",),
    "ai": ("ai_input", "train_ai"),
}
_ANSWERS = {"y": ALLOW, "n": REFUSE}
_LENIENT_ANSWERS = {**_ANSWERS, "yes": ALLOW, "no": REFUSE}
# The look-behind lets a match begin only at the start of a name, so that a long name takes linear time.
_MEMBER = re.compile(r"(?<![a-z0-9_-])([a-z][a-z0-9_-]*)[ \t]*=[ \t]*\"?([a-z]+)\"?(?![a-z0-9_-])")
_NO_AI = Preferences(ai_input=REFUSE, train_ai=REFUSE)
_NO_SEARCH = Preferences(search=REFUSE)
_NAMES = {"noindex": _NO_SEARCH, "none": _NO_SEARCH, "noai": _NO_AI}
_IMAGE_NAMES = {**_NAMES, "noimageai": _NO_AI, "noimageindex": _NO_SEARCH}


def read_usage_header(values: Iterable[bytes]) -> Statement:
    """Return the meaning of the Content-Usage fields of one answer."""
    raw, complete = bounded(values)
    joined = ", ".join(raw)
    return Statement(
        raw, usage_meaning(joined) if complete and len(joined) <= FIELD_OCTETS_MAX else NOTHING_SAID
    )


def read_signal_header(values: Iterable[bytes]) -> Statement:
    """Return the meaning of the Content-Signal fields of one answer."""
    raw, complete = bounded(values)
    return Statement(raw, combined(map(signal_meaning, raw)) if complete else NOTHING_SAID)


def read_page_names(
    robots_tags: Iterable[str], meta: Iterable[str], token: str, *, image: bool = False
) -> Statement:
    """Return the meaning of the names in `X-Robots-Tag` values and robots meta elements that apply to `token`.

    Values that exceed the limits are ignored. This is safe because no name allows a use.
    """
    tags = [value[:FIELD_OCTETS_MAX] for value in islice(robots_tags, LINES_MAX)]
    contents = [value[:FIELD_OCTETS_MAX] for value in islice(meta, LINES_MAX)]
    meanings = _IMAGE_NAMES if image else _NAMES
    names = directive_names(tags, contents, token) & meanings.keys()
    return Statement((*tags, *contents), combined(meanings[name] for name in names))


@lru_cache(MEANINGS_MAX)
def usage_meaning(text: str) -> Preferences:
    """Return the meaning of a Content-Usage dictionary."""
    if not text:
        return NOTHING_SAID
    import http_sf  # imported here because few sites send the field

    try:
        members = http_sf.parse(text.encode("latin-1"), tltype="dictionary")
    except (http_sf.StructuredFieldError, ValueError, OverflowError):
        return NOTHING_SAID
    assert isinstance(members, dict)
    found = {use: members.get(label) for label, use in _USAGE_LABELS.items()}
    values = {use: each[0] if isinstance(each, tuple) else each for use, each in found.items()}
    return Preferences(
        **{
            use: _ANSWERS.get(str(value), UNKNOWN) if isinstance(value, http_sf.Token) else UNKNOWN
            for use, value in values.items()
        }
    )


@lru_cache(MEANINGS_MAX)
def signal_meaning(text: str) -> Preferences:
    """Return the meaning of a Content-Signal value."""
    return combined(
        Preferences(**dict.fromkeys(_SIGNAL_LABELS[member[1]], _LENIENT_ANSWERS[member[2]]))
        for member in _MEMBER.finditer(text.lower())
        if member[1] in _SIGNAL_LABELS and member[2] in _LENIENT_ANSWERS
    )
