"""Reads a URL that a user typed in order to look up its page."""

from crawler.urls.canonical import canonical


def typed_url(text: str) -> str | None:
    """Return the request form of a URL, or None if it has none.

    If the scheme is missing, it is taken to be http; a page has the same fingerprint under http and https.
    """
    return canonical(text if "://" in text else f"http://{text}")
