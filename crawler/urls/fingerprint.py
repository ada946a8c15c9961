"""Fingerprints: 64 bits that stand for a URL (`seen-urls.md`, section 1).

    fingerprint(url) = H(domain)[top 16 bits] << 48 | H(key)[low 48 bits]

`key` is the duplicate key, `domain` the registrable domain of its host (the
host itself with `partition="host"`), H a hash keyed by the seed of the crawl.
The top 16 bits are the URL's bucket: all URLs of a domain have the same, so
they belong to one process and lie side by side in sorted files.

The seed is secret. With a known one, a URL with the fingerprint of a victim's
page can be computed in seconds, and that page would never be fetched. For
crawls of hostile sites there is `method="blake2b"`.

Among N URLs, N^2/2^65 are expected to be lost to collisions if hosts spread
evenly, and n^2/2^49 more for a host of n URLs.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from importlib.metadata import version
from typing import Any

import mmh3
import numpy as np
from numpy.typing import NDArray

from crawler.errors import ConfigError
from crawler.urls.canonical import duplicate_key, hostname

SEED_BYTES = 16
BUCKET_COUNT = 1 << 16
CHECK_URL = "http://fingerprint.check/"
_LOW_48 = (1 << 48) - 1
_HOSTS_MAX = 1 << 16  # hosts whose bucket is remembered: a page has few, a process some 10,000 at hand


@lru_cache(maxsize=1)
def _suffix_list() -> Any:
    from publicsuffixlist import PublicSuffixList  # imported and read on first use: some 40 ms

    return PublicSuffixList()


def suffix_list_version() -> str:
    """The version of the public suffix list; a crawl is pinned to it, since buckets hang on it."""
    return version("publicsuffixlist")


@lru_cache(maxsize=_HOSTS_MAX)
def registrable_domain(name: str) -> str:
    """The registrable domain of a canonical host name by the public suffix list, private section included.

    Addresses, public suffixes themselves and names without one are their own
    domain.
    """
    if name.endswith("]") or name.rpartition(".")[2].isdigit():
        return name
    return _suffix_list().privatesuffix(name) or name


class Fingerprinter:
    """Hashes URLs, hosts and domains under the seed of one crawl.

    Args:
        seed: 16 secret bytes, the same on all processes of a crawl. mmh3 uses
            the first four (little-endian), blake2b all.
        method: "mmh3" (0.12 us a URL) or "blake2b" (0.6 us).
        partition: "domain" or "host": what the bucket is the hash of.

    Raises:
        ConfigError: the seed's length, the method or the partition is unknown.
    """

    def __init__(
        self, seed: bytes, *, method: str = "mmh3", partition: str = "domain", strip_session_ids: bool = True
    ) -> None:
        if len(seed) != SEED_BYTES:
            raise ConfigError(f"fingerprint seed: {len(seed)} bytes, {SEED_BYTES} expected")
        if partition not in ("domain", "host"):
            raise ConfigError(f"urls.partition: {partition!r} is neither domain nor host")
        self._digest = _digest_function(method, seed)
        self._digest_words = len(self._digest(b"")) // 8
        self._partition = partition
        self._strip = strip_session_ids
        self._bucket_bits: dict[str, int] = {}

    def hash(self, data: bytes) -> int:
        """H: the first 8 bytes of the keyed digest, little-endian."""
        return int.from_bytes(self._digest(data)[:8], "little")

    def bucket(self, name: str) -> int:
        """The bucket of a host: 0 to 65,535."""
        return self._domain_bits(name) >> 48

    def host_key(self, name: str) -> int:
        """64 bits that stand for a host: its bucket on top, 48 bits of the hash of its name below."""
        return self._domain_bits(name) | self.hash(name.encode("ascii")) & _LOW_48

    def fingerprint(self, url: str) -> int:
        """The fingerprint of a request form."""
        key = duplicate_key(url, strip_session_ids=self._strip)
        return self._domain_bits(hostname(url)) | int.from_bytes(self._digest(key)[:8], "little") & _LOW_48

    def fingerprints(self, urls: Sequence[str]) -> NDArray[np.uint64]:
        """The fingerprints of many request forms, shape (n,)."""
        digests = b"".join([self._digest(duplicate_key(url, strip_session_ids=self._strip)) for url in urls])
        hashes = np.frombuffer(digests, "<u8")[:: self._digest_words]
        bits = np.fromiter((self._domain_bits(hostname(url)) for url in urls), np.uint64, len(urls))
        return bits | hashes & np.uint64(_LOW_48)

    @property
    def check_value(self) -> int:
        """The fingerprint of a fixed URL: equal on two processes only if seed and method are."""
        return self.fingerprint(CHECK_URL)

    def _domain_bits(self, name: str) -> int:
        """The bucket of a host, shifted to the top of 64 bits; remembered."""
        bits = self._bucket_bits.get(name)
        if bits is None:
            domain = registrable_domain(name) if self._partition == "domain" else name
            bits = self.hash(domain.encode("ascii")) & ~_LOW_48
            if len(self._bucket_bits) >= _HOSTS_MAX:
                self._bucket_bits.clear()
            self._bucket_bits[name] = bits
        return bits

    def __repr__(self) -> str:
        return f"Fingerprinter(partition={self._partition!r}, {len(self._bucket_bits)} hosts remembered)"


def _digest_function(method: str, seed: bytes) -> Callable[[bytes], bytes]:
    """bytes -> at least 8 digest bytes, in whole 8-byte words."""
    if method == "mmh3":
        number, digest = int.from_bytes(seed[:4], "little"), mmh3.mmh3_x64_128_digest
        return lambda data: digest(data, number)
    if method == "blake2b":
        blake2b = hashlib.blake2b
        return lambda data: blake2b(data, digest_size=8, key=seed).digest()
    raise ConfigError(f"urls.fingerprint: {method!r} is neither mmh3 nor blake2b")


def cache_keys(fingerprints: NDArray[np.uint64] | Iterable[int]) -> NDArray[np.uint64]:
    """The CLOCK cache's keys: fingerprints turned left by 16 bits, the URL's own bits before the bucket's."""
    array = np.asarray(fingerprints, np.uint64)
    return array << np.uint64(16) | array >> np.uint64(48)
