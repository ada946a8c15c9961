# cython: annotation_typing=False
"""Fingerprints: 64 bits that identify a URL (`urls/README.md`, "Fingerprint").

    fingerprint(url) = H(domain)[top 16 bits] << 48 | H(key)[low 48 bits]

`key` is the duplicate key of the URL. `domain` is the registrable domain of the URL's host, or the host
itself with `partition="host"`. H is a hash keyed by the secret seed of the crawl. The top 16 bits are the URL's
bucket.
"""

import hashlib
from array import array
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import cython
import mmh3
import numpy as np
from numpy.typing import NDArray

from crawler.errors import ConfigError
from crawler.urls.canonical import authority, duplicate_key, hostname, target
from crawler.urls.equivalence import Equivalences
from crawler.urls.suffixes import registrable_domain

if TYPE_CHECKING:
    from crawler.config import UrlsConfig

COMPILED: bool = cython.compiled

SEED_BYTES = 16
CHECK_URL = "http://fingerprint.check/"
_LOW_48 = (1 << 48) - 1
_SIXTEEN, _FORTY_EIGHT = np.uint64(16), np.uint64(48)
_ALL_64 = (1 << 64) - 1
_HOSTS_MAX = 1 << 15  # number of hosts whose bucket is cached (600 bytes each); a process needs some 10,000


@cython.final
@cython.cclass
class Fingerprinter:
    """Hashes URLs, hosts and domains with the seed of one crawl.

    Args:
        seed: 16 secret bytes, the same on all processes of a crawl. mmh3 uses
            the first four bytes (little-endian), and blake2b uses all.
        method: "mmh3" (0.12 us per URL) or "blake2b" (0.6 us).
        partition: "domain" or "host": the name whose hash is the bucket.
        strip_session_ids: whether session identifiers are removed from the key.
        equivalences: the proven pairs are applied to keys; more pairs may be proven later.

    Raises:
        ConfigError: the seed's length, the method or the partition is invalid.
    """

    _number: Callable[[bytes], int]
    _partition: str
    _strip: cython.bint
    _equivalences: Equivalences
    _aliases: dict[str, str]
    _host_bits: dict[str, int]
    _authority_bits: dict[str, int]

    def __init__(
        self,
        seed: bytes,
        *,
        method: str = "mmh3",
        partition: str = "domain",
        strip_session_ids: bool = True,
        equivalences: Equivalences | None = None,
    ) -> None:
        if len(seed) != SEED_BYTES:
            raise ConfigError(f"fingerprint seed: {len(seed)} bytes, {SEED_BYTES} expected")
        if partition not in ("domain", "host"):
            raise ConfigError(f"urls.partition: {partition!r} is neither domain nor host")
        self._number = _hash_function(method, seed)
        self._partition = partition
        self._strip = strip_session_ids
        self._equivalences = equivalences or Equivalences()
        self._aliases = self._equivalences.proven
        self._host_bits = {}
        self._authority_bits = {}

    def hash(self, data: bytes) -> int:
        """Return H(data): the first 8 bytes of the keyed digest, little-endian."""
        return self._number(data) & _ALL_64

    def bucket(self, name: str) -> int:
        return self._bits_of_host(name) >> 48

    def host_key(self, name: str) -> int:
        """Return 64 bits that identify a host. The top 16 are its bucket, and the low 48 are a hash of its name."""
        return self._bits_of_host(name) | self._number(name.encode("ascii")) & _LOW_48

    def host_key_beside(self, name: str, fingerprint: int) -> int:
        """Return the `host_key` of a URL's host, with the bucket taken from the URL's fingerprint."""
        return fingerprint & ~_LOW_48 | self._number(name.encode("ascii")) & _LOW_48

    def domain_key(self, domain: str) -> int:
        """Return the `host_key` of a registrable domain, without a look-up in the public suffix list."""
        return self.hash(domain.encode("ascii"))

    @property
    def revision(self) -> int:
        """A number that changes whenever fingerprints change because an equivalence was proven."""
        return self._equivalences.revision

    def key(self, url: str) -> bytes:
        """Return the duplicate key of a request form, with proven equivalences applied."""
        alias = self._aliases.get(authority(url))
        return duplicate_key(alias + target(url) if alias else url, strip_session_ids=self._strip)

    def fingerprint(self, url: str) -> int:
        """Return the fingerprint of a request form. Its bucket is always the bucket of the URL's own host."""
        bits = self._authority_bits.get(url[: url.index("/", 8)])
        if bits is None:
            bits = self._bits_of_authority(url)
        key = self.key(url) if self._aliases else duplicate_key(url, strip_session_ids=self._strip)
        return bits | self._number(key) & _LOW_48

    def fingerprints(self, urls: Iterable[str]) -> NDArray[np.uint64]:
        """Return the fingerprints of many request forms, shape (n,)."""
        return np.frombuffer(array("Q", map(self.fingerprint, urls)), np.uint64)

    @property
    def check_value(self) -> int:
        """Return the fingerprint of a fixed URL. Two processes with different seeds or methods get different values.

        The host of this URL is a registrable domain in every version of the public suffix list, so the list
        itself is not needed.
        """
        bucket = self.hash(hostname(CHECK_URL).encode("ascii")) & ~_LOW_48
        return bucket | self._number(duplicate_key(CHECK_URL)) & _LOW_48

    def _bits_of_host(self, name: str) -> int:
        """Return the bucket of a host, shifted to the top of 64 bits. Results are cached."""
        bits = self._host_bits.get(name)
        if bits is None:
            domain = registrable_domain(name) if self._partition == "domain" else name
            bits = _remember(self._host_bits, name, self.hash(domain.encode("ascii")) & ~_LOW_48)
        return bits

    def _bits_of_authority(self, url: str) -> int:
        return _remember(self._authority_bits, authority(url), self._bits_of_host(hostname(url)))

    def __repr__(self) -> str:
        return f"Fingerprinter(partition={self._partition!r}, {len(self._host_bits)} hosts remembered)"


def fingerprinter_of(
    config: "UrlsConfig", seed: bytes, equivalences: Equivalences | None = None
) -> Fingerprinter:
    """Return the fingerprinter of a crawl with these settings."""
    return Fingerprinter(
        seed,
        method=config.fingerprint,
        partition=config.partition,
        strip_session_ids=config.strip_session_ids,
        equivalences=equivalences,
    )


def _remember(memo: dict[str, int], name: str, bits: int) -> int:
    """Put `bits` into a cache, which is cleared when it is full, and return them."""
    if len(memo) >= _HOSTS_MAX:
        memo.clear()
    memo[name] = bits
    return bits


def _hash_function(method: str, seed: bytes) -> Callable[[bytes], int]:
    """Return a function that maps bytes to a number. Its low 64 bits are the keyed digest (little-endian)."""
    if method == "mmh3":
        number, digest = int.from_bytes(seed[:4], "little"), mmh3.mmh3_x64_128_uintdigest
        return lambda data: digest(data, number)
    if method == "blake2b":
        blake2b = hashlib.blake2b
        return lambda data: int.from_bytes(blake2b(data, digest_size=8, key=seed).digest(), "little")
    raise ConfigError(f"urls.fingerprint: {method!r} is neither mmh3 nor blake2b")


def cache_keys(fingerprints: NDArray[np.uint64] | Iterable[int]) -> NDArray[np.uint64]:
    """Return the keys for the CLOCK cache: fingerprints rotated left by 16 bits, so the bucket is at the end."""
    values = np.asarray(fingerprints, np.uint64)
    return values << _SIXTEEN | values >> _FORTY_EIGHT
