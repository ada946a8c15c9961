"""Reads URLs and host names that users type: a URL without a scheme, or with a login."""

import re

from crawler.errors import UsageError
from crawler.urls.canonical import canonical, hostname

LOGIN_REFUSED = (
    "a login in a URL is read only by `crawler crawl URL`; elsewhere, set a header in [[override]]"
)
# a text whose beginning cannot be a host name without its scheme, because it is a path or a single word
_NO_HOST = re.compile(r"/|(?!localhost\b)[^.:/?#\[]*(?:[/?#]|\Z)", re.IGNORECASE)


def typed_url(text: str) -> str | None:
    """Return the request form of a URL whose page is looked up, or None if it has none.

    If the scheme is missing, it is taken to be http; a page has the same fingerprint under http and https. A path
    is not a URL. A word such as `page` is not a URL either; `http://page` is one.
    """
    return canonical(text) if "://" in text else None if _NO_HOST.match(text) else canonical(f"http://{text}")


def looked_up(text: str) -> str:
    """Return the request form of a URL whose page is looked up.

    Raises:
        UsageError: the text is not a URL.
    """
    if (url := typed_url(text)) is None:
        raise UsageError(f"{text!r} is not an http or https URL")
    return url


def typed_host(text: str) -> str:
    """Return the canonical name of a host, or of the host of a URL; "" if the text names no host."""
    url = _url_of_host(text)
    return "" if url is None else hostname(url)


def _url_of_host(text: str) -> str | None:
    return typed_url(text) or (None if "/" in text else canonical(f"http://{text}"))


def whole_host(text: str, order: str) -> str:
    """Return the canonical name of a host. `order` names the order that applies to the whole host.

    Raises:
        UsageError: the text names no host, or it also names a port or a path.
    """
    name = typed_host(text)
    if not name:
        raise UsageError(f"{text!r} is not a host name")
    if _url_of_host(text) not in (f"http://{name}/", f"https://{name}/"):
        raise UsageError(
            f"{text!r} is not a host name; {order} applies to all URLs of a host, such as {name}"
        )
    return name


def not_a_url(text: str) -> str:
    """Explain why a text, which has no login, cannot be crawled; return "" if it can.

    If only the scheme is missing, the explanation contains the URL that was probably meant.
    """
    if canonical(text) is not None:
        return ""
    scheme, colon, _ = text.partition("://")
    if colon and scheme.isalpha() and scheme.lower() not in ("http", "https"):
        return f"{scheme.lower()} is not supported; the crawler fetches http and https URLs"
    if not colon and "@" not in text:
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
