"""Reads Content-Signal, which sites state in robots.txt or in a header field (contentsignals.org).

    Content-Signal: search=yes, ai-input=yes, ai-train=no

The format has no strict grammar, so it is read leniently. Case does not matter. Members may be separated by
commas, semicolons or blanks. The values may be `y`, `yes`, `n` and `no`. The line may begin with a path. The
member `ai` stands for both `ai-input` and `ai-train`. Other members and values are ignored. If two members
contradict each other, the refusal counts.
"""

import re
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from crawler.consent.paths import by_path
from crawler.consent.statements import (
    ALLOW,
    MEANINGS_MAX,
    NOTHING_SAID,
    REFUSE,
    Preferences,
    bounded,
    combined,
)

PARSER = "content-signal/1"
# The look-behind lets a match begin only at the start of a name, so that a long name takes linear time.
_MEMBER = re.compile(r"(?<![a-z0-9_-])([a-z][a-z0-9_-]*)[ \t]*=[ \t]*\"?([a-z]+)\"?(?![a-z0-9_-])")
_LABELS = {
    "search": ("search",),
    "ai-input": ("ai_input",),
    "ai-train": ("train_ai",),
    "ai": ("ai_input", "train_ai"),
}
_ANSWERS = {"yes": ALLOW, "y": ALLOW, "no": REFUSE, "n": REFUSE}


class ContentSignal(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The Content-Signal that applies to one answer or one path: the raw lines and their meaning."""

    raw: tuple[str, ...] = ()
    preferences: Preferences = NOTHING_SAID
    parser: str = PARSER


def read_signal_header(values: Iterable[bytes]) -> ContentSignal:
    """Return the meaning of the Content-Signal fields of one answer."""
    raw, complete = bounded(values)
    return ContentSignal(raw, combined(map(_meaning, raw)) if complete else NOTHING_SAID)


def read_signal_rules(lines: Iterable[str], target: str) -> ContentSignal:
    """Return the meaning of robots.txt's Content-Signal lines for `target` (path and query)."""
    return ContentSignal(*by_path(lines, target, _meaning))


@lru_cache(MEANINGS_MAX)
def _meaning(text: str) -> Preferences:
    return combined(
        Preferences(**dict.fromkeys(_LABELS[member[1]], _ANSWERS[member[2]]))
        for member in _MEMBER.finditer(text.lower())
        if member[1] in _LABELS and member[2] in _ANSWERS
    )
