"""The URLs of a command line, checked before anything is done."""

from crawler.errors import UsageError
from crawler.urls.canonical import canonical


def checked(text: str) -> str:
    """`text` as it stands; one without a scheme, as browsers take them, is refused with the URL that was meant.

    Raises:
        UsageError: it has none.
    """
    if canonical(text) is None and "://" not in text:
        scheme = "http" if text.startswith(("localhost", "127.", "[::1]")) else "https"
        guess = canonical(f"{scheme}://{text}")
        if guess is not None and "@" not in text:
            raise UsageError(f"{text!r} is no URL; did you mean {guess} ?")
    return text
