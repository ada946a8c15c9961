"""State changes over HTTP: the list of commands, and the checks that authorize them.

A change needs the secret of `DIR/admin-token` in the field `X-Admin-Token`. A page of another origin does not
know the secret. Moreover, a browser lets a page of another origin send the field `X-Admin-Token` only if the
server consents (CORS), and this server never consents. A request whose Origin or Sec-Fetch-Site shows another
origin is rejected before its secret is compared.
"""

import hmac
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from crawler.config.units import shown
from crawler.errors import DirectoryError
from crawler.records import UNDECODABLE
from crawler.serve.host_check import check_same_site
from crawler.serve.http_error import HttpError
from crawler.storage.files import atomic_write
from crawler.wording import not_one_of, wrong_field

TOKEN_FILE = "admin-token"
TOKEN_FIELD = "X-Admin-Token"
URLS_MAX = 10_000
_TOKEN = re.compile(r"[0-9a-f]{32}")

WITHDRAW = "withdraw"  # the arguments of this command are the fields of `withdrawal.TakeDown`
# command -> (name and type of its argument); all commands go to every process, except `seed`, which goes to
# one
COMMANDS: dict[str, tuple[str, Any]] = {
    "pause": ("", str),
    "resume": ("", str),
    "stop": ("", str),
    "block": ("host", str),
    "unblock": ("host", str),
    "retire": ("pattern", str),
    "seed": ("urls", list[str]),
    "set": ("settings", dict[str, Any]),
}
TO_ONE = frozenset({"seed"})
# if a process does not answer one of these commands, the client gets an error, because this process has
# missed the change; settings and pauses are stored instead, so a process reads them at its next start
TO_OWNERS = frozenset({"block", "unblock", "retire"})
# optional arguments of `seed`; the command line has them as --render and --set
_SEED_OPTIONS = (("render", str | None, None), ("settings", dict[str, str] | None, None))


def _form(command: str) -> type[msgspec.Struct]:
    """Return the struct whose fields are the arguments of a command. It has no other fields."""
    argument, kind = COMMANDS[command]
    fields = [("command", str), *([(argument, kind)] if argument else [])]
    more = _SEED_OPTIONS if command == "seed" else ()
    return msgspec.defstruct(command, [*fields, *more], forbid_unknown_fields=True)


_FORMS = {command: _form(command) for command in COMMANDS}


def token(directory: Path) -> str:
    """Return the secret of a crawl directory; create it if missing, readable only by its owner.

    Raises:
        DirectoryError: it cannot be created or read, or its content is not a token.
    """
    path = directory / TOKEN_FILE
    try:
        text = path.read_text("ascii", "replace").strip() if path.exists() else ""
        if not text:  # the file was not created yet, or its content was lost in a power cut
            text = os.urandom(16).hex()
            atomic_write(path, text.encode() + b"\n", mode=0o600)
    except OSError as error:
        raise DirectoryError(f"{path}: {error.strerror}") from error
    if not _TOKEN.fullmatch(text):
        raise DirectoryError(f"{path}: not a valid token; remove the file, and a new one is created")
    return text


def damaged_token(directory: Path, *, repair: bool) -> str:
    """Describe the damage of the secret; return "" if it is valid or missing. `repair` deletes a damaged secret."""
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
    """Raise HttpError unless a change is authorized: 403 (wrong origin or token), 401 (no token), 415 (not JSON)."""
    check_same_site(fields, host, "a page of another origin may not change the crawl")
    if fields.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpError(415, "refused", "send the change as JSON")
    scheme, _, credentials = fields.get("Authorization", "").partition(" ")
    given = fields.get(TOKEN_FIELD, "") or (credentials.strip() if scheme.lower() == "bearer" else "")
    if not given:
        refusal = HttpError(
            401, "refused", f"a change needs the secret from {TOKEN_FILE} in the field {TOKEN_FIELD}"
        )
        refusal.fields = (("WWW-Authenticate", 'Bearer realm="crawler"'),)  # RFC 9110 11.6.1, RFC 6750 3
        raise refusal
    if not hmac.compare_digest(given.encode("utf-8", "replace"), token.encode()):
        raise HttpError(403, "refused", f"{TOKEN_FIELD} is not the secret from {TOKEN_FILE}")


def parse(body: bytes) -> dict[str, Any]:
    """Parse the command in a request's body, {"command": name, its argument: value}.

    Raises:
        HttpError: 400, the body has another form.
    """
    try:
        request = msgspec.json.decode(body, type=dict[str, Any])
    except UNDECODABLE:
        raise HttpError(400, "bad_request", "the body is not a JSON object") from None
    name = request.get("command")
    if name == WITHDRAW:
        return request
    if not isinstance(name, str) or name not in COMMANDS:
        given = shown(request.get("command"))
        raise HttpError(400, "bad_request", f"command: {not_one_of(given, (*COMMANDS, WITHDRAW))}")
    try:
        msgspec.convert(request, _FORMS[name])
    except msgspec.ValidationError as error:
        raise HttpError(400, "bad_request", f"{name}: {wrong_field(str(error))}") from None
    argument, _ = COMMANDS[name]
    if argument and not request[argument]:
        raise HttpError(400, "bad_request", f"{name}: {argument} is empty")
    if len(request.get("urls", ())) > URLS_MAX:
        raise HttpError(400, "bad_request", f"{name}: at most {URLS_MAX:,} urls at once")
    return {field: value for field, value in request.items() if value is not None}
