"""State changes over HTTP: which there are, and who may ask for them.

A change needs the secret of `DIR/admin-token` in the field `X-Admin-Token`. A page of
another origin does not know the secret, and cannot send that field without our
consent (CORS), which we never give. A request whose Origin or Sec-Fetch-Site shows
another origin is refused first.
"""

import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import DirectoryError
from crawler.records import UNDECODABLE
from crawler.serve.host_check import check_same_site
from crawler.serve.http_error import HttpError
from crawler.storage.files import atomic_write

TOKEN_FILE = "admin-token"
TOKEN_FIELD = "X-Admin-Token"
URLS_MAX = 10_000
_TOKEN = re.compile(r"[0-9a-f]{32}")

# command -> (its argument, the argument's type); all go to every process, seeds to one
COMMANDS: dict[str, tuple[str, type]] = {
    "pause": ("", str),
    "resume": ("", str),
    "stop": ("", str),
    "block": ("host", str),
    "unblock": ("host", str),
    "retire": ("pattern", str),
    "seed": ("urls", list),
    "set": ("settings", dict),
}
TO_ONE = frozenset({"seed"})


def token(directory: Path) -> str:
    """The secret of a crawl directory, made if it is not there; readable for its owner only.

    Raises:
        DirectoryError: it cannot be made, read, or has been changed to something else.
    """
    path = directory / TOKEN_FILE
    try:
        text = path.read_text("ascii", "replace").strip() if path.exists() else ""
        if not text:  # none yet, or a power cut took it
            text = os.urandom(16).hex()
            atomic_write(path, text.encode() + b"\n", mode=0o600)
    except OSError as error:
        raise DirectoryError(f"{path}: {error.strerror}") from error
    if not _TOKEN.fullmatch(text):
        raise DirectoryError(f"{path}: is no token; remove it, and another one is made")
    return text


def damaged_token(directory: Path, *, repair: bool) -> str:
    """What is wrong with the secret of a crawl directory, "" if nothing is or it is not made yet; `repair` removes it."""
    path = directory / TOKEN_FILE
    try:
        if path.exists():
            token(directory)
    except DirectoryError as error:
        if repair:
            path.unlink(missing_ok=True)
        return str(error)
    return ""


def check(fields: Mapping[str, str], token: str, host: str) -> None:
    """Raises Refusal unless a change may be made: 403 with a wrong origin or token, 401 without a token, 415."""
    check_same_site(fields, host, "a page of another origin may not change the crawl")
    if fields.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpError(415, "refused", "a change is JSON")
    given = fields.get(TOKEN_FIELD, "")
    if not given:
        raise HttpError(401, "refused", f"a change needs the secret of {TOKEN_FILE} in {TOKEN_FIELD}")
    if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        raise HttpError(403, "refused", f"{TOKEN_FIELD} is not the secret of {TOKEN_FILE}")


def parse(body: bytes) -> dict[str, Any]:
    """The command of a request's body, {"command": name, its argument: value}.

    Raises:
        Refusal: 400, it is none.
    """
    try:
        request = msgspec.json.decode(body, type=dict[str, Any])
    except UNDECODABLE:
        raise HttpError(400, "bad_request", "the body is no JSON object") from None
    name = request.get("command")
    if not isinstance(name, str) or name not in COMMANDS:
        raise HttpError(400, "bad_request", f"a command is one of {', '.join(COMMANDS)}")
    argument, kind = COMMANDS[name]
    if not argument:
        return {"command": name}
    value = request.get(argument)
    if not isinstance(value, kind) or not value:
        raise HttpError(400, "bad_request", f"{name} needs {argument}")
    if isinstance(value, list) and (len(value) > URLS_MAX or not all(isinstance(url, str) for url in value)):
        raise HttpError(400, "bad_request", f"{name} takes at most {URLS_MAX} texts")
    return {"command": name, argument: value}
