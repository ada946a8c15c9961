"""Reads page-level robots directives from `<meta name=robots>` and `X-Robots-Tag` (`robots/README.md`, "Page level").

A header value may begin with the name of an agent (`otherbot: noindex, nofollow`); the directives then apply to
that agent only, up to the next name in the value.
"""

from collections.abc import Iterable

from crawler.records import Directives

_FIELD = b"x-robots-tag"
# Directives with a value after a colon; their names must not be mistaken for names of agents.
_VALUED = frozenset({"unavailable_after", "max-snippet", "max-image-preview", "max-video-preview"})


NO_DIRECTIVES = Directives()


def page_directives(robots_tags: Iterable[str], meta: Iterable[str], token: str) -> Directives:
    """Return the directives in `X-Robots-Tag` values and robots meta tags that apply to our product token."""
    words = directive_names(robots_tags, meta, token)
    if not words:
        return NO_DIRECTIVES
    none = "none" in words
    return Directives(none or "nofollow" in words, none or "noindex" in words, none or "noarchive" in words)


def directive_names(robots_tags: Iterable[str], meta: Iterable[str], token: str) -> frozenset[str]:
    """Return all names that apply to `token`, in lower case. The arguments are those of `page_directives`."""
    words: set[str] = set()
    for value in robots_tags:
        words.update(_words_for(value, token.lower()))
    for content in meta:
        words.update(word.strip() for word in content.lower().replace(";", ",").split(","))
    return frozenset(words - {""})


NAMES = frozenset((_FIELD,))


def header_directives(headers: Iterable[tuple[bytes, bytes]], token: str) -> Directives | None:
    """Return the directives of an answer's `X-Robots-Tag` fields; None if the answer has no such field."""
    length = len(_FIELD)
    tags = [
        value.decode("latin-1") for name, value in headers if len(name) == length and name.lower() == _FIELD
    ]
    return page_directives(tags, (), token) if tags else None


def _words_for(value: str, token: str) -> Iterable[str]:
    """Yield the directives of one header value that apply to `token` (lower case)."""
    binds = True
    for element in value.lower().split(","):
        name, colon, rest = element.partition(":")
        if colon and name.strip() not in _VALUED:
            binds = name.strip() in (token, "*")
            element = rest
        if binds:
            yield element.strip()
