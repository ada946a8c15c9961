"""Removes the logins from the URLs of a command line."""

import base64
from argparse import Namespace
from urllib.parse import unquote

from crawler.config import Layers
from crawler.errors import UsageError
from crawler.urls.canonical import canonical, hostname
from crawler.urls.typed_url import split_login


def basic(user: str, password: str) -> str:
    """Return the Authorization header of a login (RFC 7617)."""
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def without_login(url: str) -> tuple[str, str]:
    """Return a URL without its user and password, and the header that is made from them ("" if the URL has none)."""
    plain, login = split_login(url)
    user, _, password = login.partition(":")
    return plain, basic(unquote(user), unquote(password)) if login else ""


def add_logins(args: Namespace, layers: Layers) -> None:
    """Add the logins of the command line, and remove them from the URLs.

    The login of `--http-user` is for the hosts of the seeds, and a login in a URL is for the host of that
    URL. Logins are stored in the same way as all credentials.
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
        headers = layers.tree.get("identity", {}).get("headers", ())
        kept = [each for each in headers if not each.lower().startswith("authorization:")]
        layers.set("--header", "identity.headers", [*kept, header])
    if tables:
        # an override that is an earlier login for one of these hosts is replaced
        known = [
            own
            for own in layers.tree.get("override", [])
            if not (own.get("match") in tables and own.keys() <= {"match", "headers"})
        ]
        made = [{"match": host, "headers": [header]} for host, header in tables.items()]
        layers.add("flag", {"override": [*known, *made]})
