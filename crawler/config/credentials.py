"""Handles the secret settings: headers with credentials, and the user and password of a proxy.

The secrets are sent only to the part of the web for which they were given. They are stored in one file that
only the user may read.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from crawler.config.schema import Config

_NAMES = frozenset(
    {"authorization", "proxy-authorization", "cookie", "cookie2", "authentication", "signature"}
)
_WORD = re.compile(
    r"(?:^|[-_])x?(?:api)?(?:auth|token|secret|key|apikey|password|session|jwt|credential)s?(?:[-_]|$)"
)
_USER = re.compile(r"//[^/@]*@")
_SECRET_FIELD = re.compile(
    r"(?:^|[-_.\[])(?:user)?(?:pass|passw|passwd|password|passwort|passphrase|passcode|pwd|pin|otp|secret|token|api[-_]?key|"
    r"credential|cvv|cvc)s?(?:[-_.\]]|\d*$)",
    re.IGNORECASE,
)
REDACTED = "[redacted]"


def is_credential(header: str) -> bool:
    """Return whether a header "Name: value" carries a credential."""
    name = header.partition(":")[0].strip().lower()
    return name in _NAMES or _WORD.search(name) is not None


def is_secret_field(name: str) -> bool:
    """Return whether a form field, or a JSON value, has the name of a credential."""
    return _SECRET_FIELD.search(name) is not None


def has_credentials(headers: tuple[str, ...]) -> bool:
    return any(is_credential(header) for header in headers)


def without_credentials(config: Config) -> Config:
    """Return the configuration without credentials, for files that others may read."""
    return _replaced(config, lambda lines: tuple(line for line in lines if not is_credential(line)), "//")


def redacted(config: Config) -> Config:
    """Return the configuration for display: the values of credentials are replaced by `[redacted]`."""
    return _replaced(config, redacted_headers, f"//{REDACTED}@")


def redacted_headers(headers: Iterable[str]) -> tuple[str, ...]:
    """Return headers "Name: value" with the values of credentials replaced by `[redacted]`."""
    return tuple(
        f"{header.partition(':')[0]}: {REDACTED}" if ":" in header and is_credential(header) else header
        for header in headers
    )


def _replaced(config: Config, headers: Callable[[tuple[str, ...]], tuple[str, ...]], user: str) -> Config:
    replace = msgspec.structs.replace
    overrides = tuple(
        replace(own, headers=headers(own.headers)) if own.headers else own for own in config.override
    )
    return replace(
        config,
        identity=replace(config.identity, headers=headers(config.identity.headers)),
        fetch=replace(config.fetch, proxy=_USER.sub(user, config.fetch.proxy, count=1)),
        override=overrides,
    )


def credentials_of(config: Config) -> dict[str, Any]:
    """Return, as a nested mapping, the settings that `without_credentials` leaves out; {} if there are none."""
    found: dict[str, Any] = {}
    if has_credentials(config.identity.headers):
        found["identity"] = {"headers": list(config.identity.headers)}
    if _USER.search(config.fetch.proxy):
        found["fetch"] = {"proxy": config.fetch.proxy}
    if any(has_credentials(own.headers or ()) for own in config.override):
        found["override"] = {
            str(number): list(own.headers or ()) for number, own in enumerate(config.override)
        }
    return found


def add_credentials(tree: dict[str, Any], found: dict[str, Any]) -> None:
    """Put the result of `credentials_of` back into the nested mapping of the other settings."""
    for section in ("identity", "fetch"):
        if section in found:
            tree.setdefault(section, {}).update(found[section])
    for number, headers in found.get("override", {}).items():
        if headers and int(number) < len(tree.get("override", ())):
            tree["override"][int(number)]["headers"] = headers
