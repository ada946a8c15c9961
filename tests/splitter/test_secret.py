"""Test the shared secret: the permissions of its file, and the keys derived from it."""

import hashlib
import hmac
from pathlib import Path

import pytest

from crawler.errors import ConfigError
from crawler.splitter.secret import connection_keys, crawl_name, derive, fingerprint_seed, read_secret


def write(path: Path, secret: bytes, mode: int = 0o600) -> Path:
    path.write_bytes(secret)
    path.chmod(mode)
    return path


def test_a_secret_is_read_without_the_white_space_of_editors(tmp_path: Path) -> None:
    assert read_secret(write(tmp_path / "s", b"0123456789abcdef\n")) == b"0123456789abcdef"
    assert read_secret(write(tmp_path / "group", b"x" * 32, 0o440)) == b"x" * 32


@pytest.mark.parametrize(
    ("secret", "mode", "says"),
    [
        (b"short", 0o600, "16 to"),
        (b" " * 40, 0o600, "16 to"),
        (b"x" * 5000, 0o600, "4096"),
        (b"x" * 32, 0o644, "chmod 600"),
        (b"x" * 32, 0o602, "chmod 600"),
    ],
)
def test_an_invalid_secret_is_a_config_error(secret: bytes, mode: int, says: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=says):
        read_secret(write(tmp_path / "s", secret, mode))


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_secret(tmp_path / "none")


def test_derived_keys_differ_by_purpose_and_are_the_same_everywhere() -> None:
    """The expected values are HMAC-SHA256 (RFC 2104) with a key's purpose as the message.

    The standard library computes the expected values.
    """
    secret = b"0123456789abcdef"
    assert derive(secret, b"x") == hmac.new(secret, b"crawler x", hashlib.sha256).digest()
    assert len(fingerprint_seed(secret)) == 16
    one, other = connection_keys(secret, b"a" * 32, b"b" * 32)
    made = {
        one,
        other,
        *connection_keys(secret, b"b" * 32, b"a" * 32),
        *connection_keys(b"z", b"a" * 32, b"b" * 32),
    }
    assert len(made) == 6
    assert crawl_name(secret) == crawl_name(secret) != crawl_name(b"another secret..")
    assert fingerprint_seed(secret) not in (one[:16], other[:16])
