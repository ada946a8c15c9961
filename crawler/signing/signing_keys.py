"""Signing keys: Ed25519 (RFC 8032), named by their thumbprints (RFC 7638; RFC 8037, appendix A.3).

A rotation replaces the key in three steps, so that sites can check signatures at any time:

    at once        the new key is published beside the old one
    + 1 day        copies of the key directory have expired everywhere: the new key signs
    + 2 days       the last signature of the old key has expired: the old key is no longer published

If a key is compromised, the rotation happens at once: the old key is dropped, and sites that have a copy of
the directory reject requests until their copy expires.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from math import inf
from typing import Any

from crawler.config.schema import SIGNATURE_LIFETIME_MAX
from crawler.errors import ConfigError, UsageError
from crawler.wording import to_install

DIRECTORY_AGE = 86_400.0  # seconds for which clients may keep a copy of the key directory
PRIVATE_BYTES = 32


class SigningKey:
    """A private key. It signs from `begins` until the next key begins, and is published until `ends` (wall time)."""

    __slots__ = ("_private", "begins", "ends", "id", "x")

    def __init__(self, private: bytes, begins: float = 0.0, ends: float = inf) -> None:
        try:
            # Imported here because only crawls that sign need it.
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        except ImportError:
            raise ConfigError(f"signing needs cryptography: {to_install('sign')}") from None
        self._private = Ed25519PrivateKey.from_private_bytes(private)
        self.begins, self.ends = begins, ends
        self.x = encode(self._private.public_key().public_bytes_raw())
        self.id = thumbprint(self.x)

    def sign(self, base: bytes) -> bytes:
        """Return the 64-byte signature of a signature base."""
        return self._private.sign(base)

    def public(self) -> dict[str, Any]:
        """Return the public key as a JWK (RFC 8037), with the times at which its use begins and ends."""
        times = {"nbf": int(self.begins)} if self.begins else {}
        times |= {"exp": int(self.ends)} if self.ends < inf else {}
        return {"kty": "OKP", "crv": "Ed25519", "kid": self.id, "x": self.x, "use": "sig", **times}

    def secret(self) -> dict[str, Any]:
        """Return the JWK with its private part. The result is only for the key file."""
        return self.public() | {"d": encode(self._private.private_bytes_raw())}

    def until(self, ends: float) -> "SigningKey":
        """Return a copy of this key with another `ends`."""
        return SigningKey(self._private.private_bytes_raw(), self.begins, ends)

    def __repr__(self) -> str:
        return f"SigningKey({self.id}, begins={self.begins:g}, ends={self.ends:g})"


Keys = tuple[SigningKey, ...]  # the oldest first


def signing(keys: Keys, now: float) -> SigningKey:
    """Return the key that signs now: the last key that has begun, or the first key if none has begun yet."""
    assert keys
    begun = [key for key in keys if key.begins <= now]
    return begun[-1] if begun else keys[0]


def published(keys: Keys, now: float) -> Keys:
    """Return the keys that sites may need now: the keys whose signatures may still be valid, and the next key."""
    return tuple(key for key in keys if key.ends > now)


def rotated(keys: Keys, private: bytes, now: float, *, at_once: bool) -> Keys:
    """Return the keys and a new key that begins to sign in a day; with `at_once`, only a new key that signs now.

    Raise UsageError if an earlier rotation is not finished.
    """
    if at_once:
        return (SigningKey(private, now),)
    last = keys[-1]
    if last.begins > now:
        raise UsageError("the previous rotation is not finished; --now drops the earlier keys")
    begins = now + DIRECTORY_AGE
    former = [key for key in keys[:-1] if key.ends > now]
    return (*former, last.until(begins + SIGNATURE_LIFETIME_MAX), SigningKey(private, begins))


def encode(data: bytes) -> str:
    """Return bytes as base64url without padding (RFC 7515, 2)."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    """Return the bytes that a base64url text encodes. Raise ValueError if the text is not base64url."""
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


def thumbprint(x: str) -> str:
    """Return the thumbprint of an Ed25519 key: SHA-256 of its required members in order (RFC 7638, 3)."""
    return encode(hashlib.sha256(f'{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}'.encode()).digest())
