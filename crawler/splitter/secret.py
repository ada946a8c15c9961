"""The shared secret of a crawl on several machines, and the keys derived from it.

The secret is a file of at least 16 bytes that others may not read. The secret is never sent. Each connection
has two keys, one per direction. The keys depend on the secret and on a fresh challenge from each side, so a
recorded connection cannot be replayed. The fingerprint seed and the crawl's name are derived from the secret,
too. So processes that share the secret agree on the seed and the name without communicating. If there is no
secret (`splitter/README.md`, "Frames"), the same code runs with an empty one.
"""

import hashlib
import hmac
from pathlib import Path

from crawler.errors import ConfigError

SECRET_BYTES_MIN = 16
SECRET_BYTES_MAX = 4096


def read_secret(path: Path) -> bytes:
    """Return the secret in a file, without surrounding white space.

    The group of the file may have access to it, because clusters mount secrets with group permissions. A
    file that everyone may read is refused.

    Raises:
        ConfigError: the file cannot be read, is too short or too long, or others may read it.
    """
    try:
        if path.stat().st_mode & 0o007:
            raise ConfigError(f"splitter.secret_file {path}: other users can read it; run chmod 600")
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
    """Return 32 bytes for `purpose`, which reveal neither the secret nor the bytes for any other purpose."""
    return hmac.digest(secret, b"crawler " + purpose, hashlib.sha256)


def fingerprint_seed(secret: bytes) -> bytes:
    """Return the 16-byte fingerprint seed that all processes with this secret use."""
    return derive(secret, b"fingerprint seed")[:16]


def crawl_name(secret: bytes) -> str:
    """Return the default identity of the crawl for all processes with this secret."""
    return derive(secret, b"crawl identity")[:8].hex()


def connection_keys(secret: bytes, dialler_nonce: bytes, listener_nonce: bytes) -> tuple[bytes, bytes]:
    """Return two keys: the first is for data from the dialler, and the second is for data from the listener."""
    challenges = dialler_nonce + listener_nonce
    return derive(secret, b"dialler" + challenges), derive(secret, b"listener" + challenges)
