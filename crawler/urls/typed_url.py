"""Reads URLs and host names that users type: a URL without a scheme, or with a login.

A URL that is to be crawled must have a scheme (`crawled`). A URL whose page is looked up need not (`looked_up`). These
functions, and `some_url`, reject other texts with the same error.
"""

import re
from collections.abc import Sequence

from crawler.errors import UsageError
from crawler.urls.canonical import (
    LENGTH_MAX,
    SCHEME,
    TOO_LONG,
    UNPARSABLE,
    canonical,
    hostname,
    resolve_or_rule,
)

LOGIN_REFUSED = (
    "a login in a URL is read only by `crawler crawl URL`; elsewhere, set a header in [[override]]"
)
_SHOWN_MAX = 200  # maximum number of characters of a wrong URL that a message shows
# a text whose beginning cannot be a host name without its scheme, because it is a path, a single word, another scheme
# or an address of mail
_NO_HOST = re.compile(r"/|(?!localhost\b)[^.:/?#\[]*(?:[/?#]|:(?!\d)|\Z)|[^/?#]*@", re.IGNORECASE)


_IPV6 = re.compile(r"(?=.*:.*:)[0-9A-Fa-f:.]+")
# characters around a URL that its parser ignores: C0 controls and the space
_AROUND = "".join(map(chr, range(0x21)))
# a byte that was not UTF-8, as the error handler "surrogateescape" decodes it
_BYTE = re.compile("[\udc80-\udcff]")


def percent_encoded(text: str) -> str:
    """Return a text that was decoded with "surrogateescape", with its bytes that are not UTF-8 percent-encoded.

    A server thus receives the bytes that the user typed, and they name the same page on every way into the crawl.
    """
    return _BYTE.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", text)


def typed_url(text: str) -> str | None:
    """Return the request form of a URL whose page is looked up, or None if it has none.

    If the scheme is missing, it is taken to be http; a page has the same fingerprint under http and https. A path
    is not a URL. A word such as `page` is not a URL either; `http://page` is one.
    """
    text = percent_encoded(text).strip(_AROUND)
    if (url := canonical(text)) is not None or "://" in text or _NO_HOST.match(text):
        return url
    return canonical(f"http://{text}")


def looked_up(text: str) -> str:
    """Return the request form of a URL whose page is looked up.

    Raises:
        UsageError: the text is not a URL.
    """
    if (url := typed_url(text)) is None:
        raise _no_url(text, not_a_url(text, lacks_scheme=False))
    return url


def crawled(text: str) -> str:
    """Return a text, with its login if it has one, if it is a URL that can be crawled.

    Raises:
        UsageError: the text is not a URL; the message contains the URL that was probably meant, if there is one.
    """
    plain, _ = split_login(text)
    if why := not_a_url(plain):
        raise _no_url(plain, why)
    return percent_encoded(text)


def some_url(texts: Sequence[str]) -> None:
    """Check that a list of URLs that are to be crawled contains at least one URL, with or without a login.

    Raises:
        UsageError: no text is a URL; the message names the first.
    """
    rules = (resolve_or_rule(None, split_login(text)[0])[1] for text in texts)
    if texts and all(rule in (SCHEME, UNPARSABLE) for rule in rules):
        crawled(texts[0])


def cut(text: str) -> str:
    """Return a wrong URL or host name for a message, which is cut if it is long."""
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}..."


def _no_url(text: str, why: str) -> UsageError:
    return UsageError(f"{cut(text)!r} is {why}" if why.startswith("not a") else f"{cut(text)!r}: {why}")


def typed_host(text: str) -> str:
    """Return the canonical name of a host, or of the host of a URL; "" if the text names no host."""
    url = _url_of_host(text)
    return "" if url is None else hostname(url)


def host_of(text: str) -> str:
    """Return the same as `typed_host`.

    Raises:
        UsageError: the text names no host.
    """
    if not (name := typed_host(text)):
        raise _no_host(text)
    return name


def _no_host(text: str) -> UsageError:
    return UsageError(f"{cut(text)!r} is not a host name")


def _url_of_host(text: str) -> str | None:
    """Return the URL that a host name stands for. An IPv6 address may be written without its brackets."""
    text = percent_encoded(text).strip(_AROUND)
    if _IPV6.fullmatch(text):
        text = f"[{text}]"
    return typed_url(text) or (None if "/" in text or "@" in text else canonical(f"http://{text}"))


def whole_host(text: str, order: str) -> str:
    """Return the canonical name of a host. `order` names the order that applies to the whole host.

    Raises:
        UsageError: the text names no host, all hosts of a domain (*.example.org), or also a port or a path.
    """
    name = host_of(text)
    if "*" in name:
        raise UsageError(f"{_no_host(text)}; {order} applies to one host")
    if _url_of_host(text) not in (f"http://{name}/", f"https://{name}/"):
        raise UsageError(f"{_no_host(text)}; {order} applies to all URLs of a host, such as {name}")
    return name


def not_a_url(text: str, *, lacks_scheme: bool = True) -> str:
    """Explain why a text, which has no login, cannot be crawled; return "" if it can.

    With `lacks_scheme`, if only the scheme is missing, the explanation contains the URL that was probably meant.
    """
    _, rule = resolve_or_rule(None, text)
    if not rule:
        return ""
    if rule == TOO_LONG:
        return f"a URL has at most {LENGTH_MAX:,} bytes"
    scheme, colon, _ = text.partition("://")
    if colon and scheme.isalpha() and scheme.lower() not in ("http", "https"):
        return f"{scheme.lower()} is not supported; the crawler fetches http and https URLs"
    if lacks_scheme and not colon and not _NO_HOST.match(text):
        usual = "http" if text.startswith(("localhost", "127.", "[::1]")) else "https"
        if (guess := canonical(f"{usual}://{text}")) is not None:
            return f"not a URL; did you mean {guess} ?"
    return "not an http(s) URL"


def split_login(url: str) -> tuple[str, str]:
    """Return a URL without the login that it contains, and the login as "user:password" ("" if there is none)."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    login, at, host = place.rpartition("@")
    if not separator or not at:
        return url, ""
    return f"{scheme}://{host}{slash}{path}", login
