"""The key file: private keys as a JWK set (RFC 7517, 5). All processes of a crawl share one key file of mode 0600.

The key file is `signing.key` in the crawl directory, unless `identity.key_file` names another file. No
other file contains a private key. A running process reads the file again when the file has changed,
so `crawler key rotate` needs no restart.
"""

from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.config import Config
from crawler.errors import ConfigError
from crawler.signing.signing_keys import PRIVATE_BYTES, Keys, SigningKey, decode
from crawler.storage.files import atomic_write

NAME = "signing.key"
OFF = "off"
_BYTES_MAX = 64 << 10
_KEYS_MAX = 64


def key_path(config: Config, directory: Path) -> Path:
    """Return the path of the key file of a crawl."""
    return Path(config.identity.key_file) if config.identity.key_file else directory / NAME


def with_key_file(config: Config, directory: Path) -> Config:
    """Return the configuration with the path of the key file filled in, if the crawl signs its requests."""
    if config.identity.signature == OFF:
        return config
    return replace(config, identity=replace(config.identity, key_file=str(key_path(config, directory))))


def write_keys(path: Path, keys: Keys) -> None:
    """Replace the key file durably. Only its owner may read the new file."""
    content = msgspec.json.format(msgspec.json.encode({"keys": [key.secret() for key in keys]}), indent=1)
    atomic_write(path, content + b"\n", mode=0o600)


def read_keys(path: Path) -> Keys:
    """Return the keys of a key file, beginning with the oldest.

    The group of the file may have read access, because cluster software mounts secrets that way. A file to
    which all users have access is refused.

    Raises:
        ConfigError: the file is missing, damaged or readable by others, or `cryptography` is missing.
    """
    try:
        if path.stat().st_mode & 0o007:
            raise ConfigError(f"key file {path}: other users can read it; run chmod 600")
        with path.open("rb") as file:
            content = file.read(_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigError(f"key file {path} does not exist; `crawler key new` makes it") from None
    except OSError as error:
        raise ConfigError(f"key file {path}: {error.strerror}") from error
    keys = _decoded(content)
    if not keys:
        raise ConfigError(f"key file {path}: not a JWK set with private Ed25519 keys")
    return tuple(sorted(keys, key=lambda key: key.begins))


def _decoded(content: bytes) -> list[SigningKey]:
    """Decode the content of a key file; return no keys if it is damaged. The error, which may show a key, is dropped."""
    try:
        rows: list[dict[str, Any]] = msgspec.json.decode(content, type=dict[str, list[dict[str, Any]]])[
            "keys"
        ]
        made = [
            SigningKey(decode(row["d"]), float(row.get("nbf", 0.0)), float(row.get("exp", inf)))
            for row in rows[:_KEYS_MAX]
            if len(decode(row["d"])) == PRIVATE_BYTES
        ]
    except (msgspec.MsgspecError, KeyError, TypeError, ValueError):
        return []
    return made if len(made) == len(rows) else []


class KeyFile:
    """The keys of a file, which are read again when the file changes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.keys = read_keys(path)
        self._stamp = self._look()

    def renew(self) -> bool:
        """Read the file again if it has changed; return whether the keys have changed.

        If the file cannot be read (ConfigError), the keys in use stay in use.
        """
        stamp = self._look()
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self.keys = read_keys(self.path)
        return True

    def _look(self) -> tuple[int, ...]:
        try:
            found = self.path.stat()
        except OSError:
            return ()
        return found.st_ino, found.st_mtime_ns, found.st_size
