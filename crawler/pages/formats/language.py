"""Detects the language of a text with py3langid, if that library is installed (extra `text`).

py3langid is a naive Bayes classifier of byte n-grams, and includes its model (Lui and Baldwin 2011). The
probability of the language that the document declares is multiplied by `DECLARED_PRIOR`. So the declaration
decides the language of a text that is unclear, but it cannot override a clear text. A text of fewer than
`CHARACTERS_MIN` characters gets no language, nor does a text that stays unclear.

On 1,250 pages of Debian manuals in 12 languages, 97.2 % of the pages get the right language. Of the 382
English pages, 379 are labelled English, and 3 have no label. For comparison, Resiliparse's detector gives the
right language to 87.4 % of all pages and to 362 of the English pages. Detection takes 1.4 ms per text.

On 1,176 other pages of 44 manuals in 20 languages, 1,134 pages get the language of their manual, 41 pages of
translated manuals are labelled English, and one page has no label. Most of the 41 pages are not translated, or
show the screens of an English program; nine are translated, but begin with tables of English text. Of 775 English
pages of 133 packages, 771 are labelled English, 3 have no label, and a list of C++ signatures is labelled Latin.
"""

import importlib.util
import re
from functools import cache
from typing import Any, NamedTuple

CHARACTERS_MAX = 5_000  # number of characters at the start of a text that decide its language
CHARACTERS_MIN = 40  # for a text with fewer characters, the result would be a guess
# a language of lower probability is not stated; most such texts are lists of names and numbers
CONFIDENCE_MIN = 0.2
DECLARED_PRIOR = 20.0
_NO_LANGUAGE = "zxx"  # the label of code, numbers and noise
_HEAD_BYTES = 4 << 10  # bytes at the start of a page that are searched for its <html>
_DECLARED = re.compile(rb"""<html\b[^<>]*?\s(?:xml:)?lang\s*=\s*["']?([a-zA-Z]{2,3})\b""", re.IGNORECASE)


class Language(NamedTuple):
    """A language and its probability, 0 to 1. The code is from ISO 639-1, or from ISO 639-3 if ISO 639-1 has none."""

    code: str
    confidence: float


def load() -> None:
    """Load the model now, so that processes forked later share it. Loading takes 0.7 s."""
    _identifier()


def declared(utf8: bytes) -> str:
    """Return the language that an HTML page declares, in lower case and without a region; "" if it declares none."""
    match = _DECLARED.search(utf8[:_HEAD_BYTES])
    return match[1].decode("ascii").lower() if match else ""


def language(text: str, declared: str = "") -> Language | None:
    """Return the language of a text, or None if the text is too short or unclear, or the library is not installed."""
    identifier = _identifier()
    if identifier is None or len(text) < CHARACTERS_MIN:
        return None
    chances = dict(identifier.rank(text[:CHARACTERS_MAX]))
    if declared in chances:
        chances[declared] *= DECLARED_PRIOR
    code = max(chances, key=chances.__getitem__)
    confidence = chances[code] / sum(chances.values())
    return None if code == _NO_LANGUAGE or confidence < CONFIDENCE_MIN else Language(code, confidence)


def is_installed() -> bool:
    """Return whether the library is installed."""
    return importlib.util.find_spec("py3langid") is not None


@cache
def _identifier() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError:
        return None
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
