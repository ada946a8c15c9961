"""Signs requests according to Web Bot Auth (draft-ietf-webbotauth-httpsig-protocol), in one of two profiles.

    dictionary   Signature-Agent: sig="https://bot.example"      the working group's form
    string       Signature-Agent: "https://bot.example"          the form that deployed verifiers accept

`signing/README.md`, "Requests", states what a signature covers, which answers ask for one, and how much CPU time
signatures cost. At most `signature_hosts_max` challenges and signatures are remembered. The oldest challenges
and signatures are forgotten first.
"""

import logging
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from crawler.config import IdentityConfig
from crawler.errors import ConfigError
from crawler.signing.key_file import OFF, KeyFile
from crawler.signing.message_signatures import Component, signature_values
from crawler.signing.signing_keys import signing

log = logging.getLogger("crawler")

TAG = "web-bot-auth"
LABEL = "sig"
ON_CHALLENGE = "challenge"
LOOK_INTERVAL = 10.0  # seconds between two checks of the key file
# status codes after which the same request may succeed if it is sent again with a signature
REPEATABLE = frozenset({401, 403})
# A challenge in WWW-Authenticate whose parameters name Web Bot Auth, or whose scheme uses signatures.
_NAMED = re.compile(
    rb"web-bot-auth|(?:^|,)\s*(?:signature|http-?sig|http-?message-?signatures?)(?=\s|,|$)", re.IGNORECASE
)

Fields = Iterable[tuple[bytes, bytes]]


class _Signed(NamedTuple):
    fields: str
    until: float


class RequestSigner:
    """Makes the header fields that sign requests. Raises ConfigError if the key file cannot be used."""

    def __init__(self, identity: IdentityConfig) -> None:
        self._identity = identity
        self._agent = identity.signature_agent.rstrip("/")
        self._file = KeyFile(Path(identity.key_file))
        self._look_at = 0.0
        self._made: dict[str, _Signed] = {}
        self._asked: dict[str, None] = {}  # the authorities that asked for signatures

    def fields(self, authority: str, now: float) -> str:
        """Return the header lines that sign a request to `authority` (the Host field); "" if it is not to be signed."""
        if self._identity.sign_when == ON_CHALLENGE and authority not in self._asked:
            return ""
        if now >= self._look_at:
            self._renew(now)
        made = self._made.get(authority)
        if made is None or now >= made.until:
            self._made.pop(authority, None)
            made = self._made[authority] = self._sign(authority, now)
            self._bound(self._made)
        return made.fields

    def note(self, authority: str, status: int, fields: Fields, *, signed: bool) -> bool:
        """Note an answer. Return whether the request should be repeated because the server asks for a signature."""
        if signed or self._identity.sign_when != ON_CHALLENGE or not asks_for_signature(status, fields):
            return False
        self._asked[authority] = None
        self._bound(self._asked)
        return status in REPEATABLE

    def _sign(self, authority: str, now: float) -> _Signed:
        key, created = signing(self._file.keys, now), int(now)
        agent = f'"{self._agent}"'
        if self._identity.signature == "dictionary":
            identifier, header = f'"signature-agent";key="{LABEL}"', f"{LABEL}={agent}"
        else:
            identifier, header = '"signature-agent"', agent
        components: list[Component] = [('"@authority"', authority.lower()), (identifier, agent)]
        expires = created + int(self._identity.signature_lifetime)
        signed, signature = signature_values(components, key, created, expires, TAG)
        lines = (
            f"Signature-Agent: {header}\r\n"
            f"Signature-Input: {LABEL}={signed}\r\n"
            f"Signature: {LABEL}={signature}\r\n"
        )
        return _Signed(lines, created + self._identity.signature_reuse)

    def _renew(self, now: float) -> None:
        self._look_at = now + LOOK_INTERVAL
        try:
            if self._file.renew():
                self._made.clear()
        except ConfigError as error:
            log.warning("%s; requests are signed with the previous key", error)

    def _bound(self, remembered: dict[str, _Signed] | dict[str, None]) -> None:
        while len(remembered) > self._identity.signature_hosts_max:
            del remembered[next(iter(remembered))]  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"RequestSigner({self._identity.signature}, {len(self._made)} authorities)"


def make_signer(identity: IdentityConfig) -> RequestSigner | None:
    """Return the signer for a configuration; None if requests are not signed."""
    return None if identity.signature == OFF else RequestSigner(identity)


def asks_for_signature(status: int, fields: Fields) -> bool:
    """Return whether an answer asks for requests with the signatures of Web Bot Auth."""
    for name, value in fields:
        lower = name.lower()
        if lower == b"accept-signature" and _accepts(value):
            return True
        if lower == b"www-authenticate" and status in REPEATABLE and _NAMED.search(value):
            return True
    return False


def _accepts(value: bytes) -> bool:
    """Return whether a member of an Accept-Signature field (RFC 9421, 5.1) has our tag or no tag."""
    import http_sf  # imported here because few servers send the field

    try:
        members: Any = http_sf.parse(value, tltype="dictionary")
    except ValueError:
        return False
    return any(options.get("tag", TAG) == TAG for _, options in members.values())
