"""Page-level robots directives: `<meta name=robots>` and `X-Robots-Tag`.

Both are comma lists, case-blind. A header value may begin with the name of the
agent it is meant for (`otherbot: noindex, nofollow`); it then binds that agent
only, up to the next name in the value. `none` is `noindex, nofollow`.
"""

from collections.abc import Iterable
from typing import NamedTuple

# Directives that carry a value behind a colon, so that they are not taken for the name of an agent.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


class Directives(NamedTuple):
    """What the page asks of us."""

    nofollow: bool = False  # no link of the page is taken
    noindex: bool = False  # the page is flagged
    noarchive: bool = False  # it is not served or exported unless asked for


NO_DIRECTIVES = Directives()


def page_directives(robots_tags: Iterable[str], meta: Iterable[str], token: str) -> Directives:
    """Return what `X-Robots-Tag` values and the contents of robots meta tags say to `token`.

    Args:
        robots_tags: the values of the header fields, in order.
        meta: contents of the meta tags named `robots` or as our token.
        token: our product token.
    """
    words: set[str] = set()
    for value in robots_tags:
        words.update(_words_for(value, token.lower()))
    for content in meta:
        words.update(word.strip() for word in content.lower().replace(";", ",").split(","))
    if not words:
        return NO_DIRECTIVES
    none = "none" in words
    return Directives(none or "nofollow" in words, none or "noindex" in words, none or "noarchive" in words)


def _words_for(value: str, token: str) -> Iterable[str]:
    """The directives of one header value that bind `token` (lower case)."""
    binds = True
    for element in value.lower().split(","):
        name, colon, rest = element.partition(":")
        if colon and name.strip() not in _VALUED:
            binds = name.strip() in (token, "*")
            element = rest
        if binds:
            yield element.strip()
