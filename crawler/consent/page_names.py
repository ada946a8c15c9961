"""Reads names such as `noai` in `X-Robots-Tag` and meta robots as statements about how a page may be used.

All names that apply to the crawler's product token are kept, but only a few of these names say something
about uses. `noai` and `noimageai` were introduced by DeviantArt and have no specification: the crawler reads
`noai` as a refusal of the two AI uses, and `noimageai` as the same refusal if the answer is an image.
"""

from collections.abc import Iterable

import msgspec

from crawler.consent.statements import (
    FIELD_OCTETS_MAX,
    LINES_MAX,
    NOTHING_SAID,
    REFUSE,
    Preferences,
    combined,
)
from crawler.extract.directives import directive_names

PARSER = "page-names/1"
NAMES_MAX = 64  # maximum number of names kept per page; the known vocabulary has about 20 names
_NO_AI = Preferences(ai_input=REFUSE, train_ai=REFUSE)
_NO_SEARCH = Preferences(search=REFUSE)
_MEANINGS = {"noindex": _NO_SEARCH, "none": _NO_SEARCH, "noai": _NO_AI}
_IMAGE_MEANINGS = {**_MEANINGS, "noimageai": _NO_AI, "noimageindex": _NO_SEARCH}


class PageNames(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A page's robots directives: raw values, the names in them that apply to our product token, and their meaning."""

    raw: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    preferences: Preferences = NOTHING_SAID
    parser: str = PARSER


def read_page_names(
    robots_tags: Iterable[str], meta: Iterable[str], token: str, *, image: bool = False
) -> PageNames:
    """Return the names in `X-Robots-Tag` values and robots meta elements that apply to `token`.

    Values and names that exceed the limits are ignored. This is safe because no name allows a use.
    """
    tags = [value[:FIELD_OCTETS_MAX] for value, _ in zip(robots_tags, range(LINES_MAX), strict=False)]
    contents = [value[:FIELD_OCTETS_MAX] for value, _ in zip(meta, range(LINES_MAX), strict=False)]
    names = sorted(directive_names(tags, contents, token))
    meanings = _IMAGE_MEANINGS if image else _MEANINGS
    meaning = combined(meanings[name] for name in names if name in meanings)
    return PageNames((*tags, *contents), tuple(names[:NAMES_MAX]), meaning)
