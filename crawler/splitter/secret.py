"""The shared secret of a many-machine crawl, and the keys made from it.

The secret is a file of at least 16 bytes that others may not read. It is never
sent: each connection has two keys, one a direction, that depend on it and on a
fresh challenge of either side, so a recorded connection cannot be replayed.
The fingerprint seed and the crawl's name come from it too, so that processes
that share it agree without talking.

Without a secret (loopback only) the same code runs under the empty one: the
tags then find damage, not attackers.
"""

import hashlib
import hmac
from pathlib import Path

from crawler.errors import ConfigError

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096


def read_secret(path: Path) -> bytes:
    """The secret in a file, without white space around it.

    Group access is let pass, since a cluster mounts secrets for a group; a file
    that everyone may read is no secret.

    Raises:
        ConfigError: it cannot be read, is too short or too long, or others may read it.
    """
    try:
        if path.stat().st_mode & 0o007:
            raise ConfigError(f"splitter.secret_file {path}: others may read it; chmod 600")
        with path.open("rb") as file:
            secret = file.read(SECRET_BYTES_MAX + 1).strip()
    except OSError as error:
        raise ConfigError(f"splitter.secret_file {path}: {error.strerror}") from error
    if not SECRET_BYTES_MIN <= len(secret) <= SECRET_BYTES_MAX:
        raise ConfigError(
            f"splitter.secret_file {path}: expected {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes"
        )
    return secret


def derive(secret: bytes, purpose: bytes) -> bytes:
    """32 bytes that tell nothing of the secret nor of what is derived for another purpose."""
    return hmac.digest(secret, b"crawler " + purpose, hashlib.sha256)


def fingerprint_seed(secret: bytes) -> bytes:
    """The 16-byte seed of the fingerprint that all processes with this secret use."""
    return derive(secret, b"fingerprint seed")[:16]


def crawl_name(secret: bytes) -> str:
    """The crawl identity of all processes with this secret, for want of another."""
    return derive(secret, b"crawl identity")[:8].hex()


def connection_keys(secret: bytes, dialler_nonce: bytes, listener_nonce: bytes) -> tuple[bytes, bytes]:
    """(key of what the dialler sends, key of what the listener sends)."""
    challenges = dialler_nonce + listener_nonce
    return derive(secret, b"dialler" + challenges), derive(secret, b"listener" + challenges)
