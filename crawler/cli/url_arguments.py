"""The URLs of a command line, checked first, and the logins that go with them."""

import base64
from argparse import Namespace
from urllib.parse import unquote

from crawler.config import Layers
from crawler.errors import UsageError
from crawler.urls.canonical import canonical, hostname


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


def basic(user: str, password: str) -> str:
    """The header of a login (RFC 7617)."""
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def without_login(url: str) -> tuple[str, str]:
    """A URL without the user and password in it, and the header that they make; "" if there are none."""
    scheme, separator, rest = url.partition("://")
    place, slash, path = rest.partition("/")
    login, at, host = place.rpartition("@")
    if not separator or not at:
        return url, ""
    user, _, password = login.partition(":")
    return f"{scheme}://{host}{slash}{path}", basic(unquote(user), unquote(password))


def add_logins(args: Namespace, layers: Layers) -> None:
    """Let the logins of the command line bind: `--http-user` at the seeds' hosts, those in URLs at their own.

    The URLs lose them. They are kept as all credentials are.
    """
    tables = {}
    for place, url in enumerate(args.urls):
        args.urls[place], header = without_login(url)
        if header and (form := canonical(args.urls[place])):
            tables[hostname(form)] = header
    if args.http_password is not None and args.http_user is None:
        raise UsageError("--http-password: needs --http-user")
    if args.http_user is not None:
        header = basic(args.http_user, args.http_password or "")
        kept = [each for each in _headers(layers) if not each.lower().startswith("authorization:")]
        layers.set("flag", "identity.headers", [*kept, header])
    if tables:
        known = [own for own in layers.tree.get("override", []) if not _is_login(own, tables)]
        made = [{"match": host, "headers": [header]} for host, header in tables.items()]
        layers.add("flag", {"override": [*known, *made]})


def _headers(layers: Layers) -> list[str]:
    return list(layers.tree.get("identity", {}).get("headers", []))


def _is_login(table: dict[str, object], logins: dict[str, str]) -> bool:
    """Whether an override is the login of an earlier run at a host that has one now."""
    return table.get("match") in logins and table.keys() <= {"match", "headers"}
