"""Test that the key file is private, is read again when it changes, and is never shown in an error."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from crawler.config import Config, IdentityConfig
from crawler.errors import ConfigError
from crawler.signing.key_file import KeyFile, key_path, read_keys, with_key_file, write_keys
from crawler.signing.signing_keys import SigningKey

SECRET = bytes(range(32))


def test_saved_keys_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    write_keys(path, (SigningKey(SECRET, 5.0, 9.0), SigningKey(bytes(32), 7.0)))
    assert path.stat().st_mode & 0o777 == 0o600
    first, second = read_keys(path)
    assert (first.id, first.begins, first.ends) == (SigningKey(SECRET).id, 5.0, 9.0)
    assert second.begins == 7.0 and second.ends > 1e300


@pytest.mark.parametrize(
    ("content", "mode", "says"),
    [
        (None, 0o600, "does not exist; `crawler key new` makes it"),
        (b"{}", 0o644, "other users can read it; run chmod 600"),
        (b"", 0o600, "not a JWK set"),
        (b'{"keys": []}', 0o600, "not a JWK set"),
        (b'{"keys": [{"d": "s3cr3t"}]}', 0o600, "not a JWK set"),
        (b'{"keys": [{"d": 5}]}', 0o600, "not a JWK set"),
        (b'{"keys": [{"d": "%b", "nbf": "s3cr3t"}]}' % (b"A" * 43), 0o600, "not a JWK set"),
        (b'{"keys": [{"kty": "OKP"}]}', 0o600, "not a JWK set"),
        (b'{"keys": "s3cr3t"}', 0o600, "not a JWK set"),
        (b"s3cr3t" * 20_000, 0o600, "not a JWK set"),
    ],
)
def test_an_unusable_file_gives_a_clear_error(
    tmp_path: Path, content: bytes | None, mode: int, says: str
) -> None:
    path = tmp_path / "signing.key"
    if content is not None:
        path.write_bytes(content)
        path.chmod(mode)
    with pytest.raises(ConfigError, match=says) as caught:
        read_keys(path)
    assert "s3cr3t" not in str(caught.value) and str(path) in str(caught.value)


def test_a_changed_file_is_read_again_and_a_damaged_one_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    write_keys(path, (SigningKey(SECRET),))
    file = KeyFile(path)
    assert not file.renew()
    write_keys(path, (SigningKey(bytes(32)),))
    assert file.renew() and file.keys[0].id == SigningKey(bytes(32)).id
    path.write_bytes(b"{}")
    os.utime(path, (1, 1))
    with pytest.raises(ConfigError):
        file.renew()
    assert file.keys[0].id == SigningKey(bytes(32)).id
    assert not file.renew(), "the same damage is reported once"
    path.unlink()
    with pytest.raises(ConfigError, match="does not exist"):
        file.renew()


def test_the_location_of_the_key_file(tmp_path: Path) -> None:
    config = Config(identity=IdentityConfig(signature="string", signature_agent="https://b.example"))
    assert key_path(config, tmp_path) == tmp_path / "signing.key"
    located = with_key_file(config, tmp_path)
    assert located.identity.key_file == str(tmp_path / "signing.key")
    assert key_path(located, Path("elsewhere")) == tmp_path / "signing.key"
    off = replace(config, identity=replace(config.identity, signature="off"))
    assert with_key_file(off, tmp_path) is off
