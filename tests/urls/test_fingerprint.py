"""Test fingerprints and their parts (`urls/README.md`, "Fingerprint")."""

import hashlib

import mmh3
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import ConfigError
from crawler.urls.fingerprint import CHECK_URL, Fingerprinter, cache_keys
from crawler.urls.suffixes import registrable_domain
from tests.forms import interpreted

SEED = bytes(range(16))
METHODS = ["mmh3", "blake2b"]
LOW_48 = (1 << 48) - 1
names = st.lists(
    st.sampled_from(["www", "a", "example", "co", "uk", "com", "github", "io", "x1"]), min_size=1, max_size=5
)
urls = st.builds(
    lambda scheme, labels, path: f"{scheme}://{'.'.join(labels)}/{path}",
    st.sampled_from(["http", "https"]),
    names,
    st.text("ab/%7E?=&;(", max_size=12),
)


def fingerprint_by_formula(url: str, domain: str, method: str) -> int:
    """Compute a fingerprint by a second implementation, written from the formula in `urls/README.md`."""

    def h(data: bytes) -> int:
        if method == "mmh3":
            return int.from_bytes(
                mmh3.mmh3_x64_128_digest(data, int.from_bytes(SEED[:4], "little"))[:8], "little"
            )
        return int.from_bytes(hashlib.blake2b(data, key=SEED, digest_size=8).digest(), "little")

    return h(domain.encode()) >> 48 << 48 | h(url.encode()) & LOW_48


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("url", "domain"),
    [
        (CHECK_URL, "fingerprint.check"),
        ("https://www.example.co.uk/a?b", "example.co.uk"),
        ("http://user.github.io:8080/", "user.github.io"),
        ("http://localhost/", "localhost"),
        ("http://127.0.0.1:8081/", "127.0.0.1"),
        ("http://[::1]:8080/x", "[::1]"),
        ("http://co.uk/", "co.uk"),
    ],
)
def test_fingerprint_follows_the_formula(url: str, domain: str, method: str) -> None:
    fingerprinter = Fingerprinter(SEED, method=method)
    for _ in range(2):  # the second time, the host is in the cache
        assert fingerprinter.fingerprint(url) == fingerprint_by_formula(url, domain, method)


def test_golden_values() -> None:
    """A change of these values makes stored crawls unreadable. Computed with mmh3 5.3.1 and hashlib of Python 3.11."""
    assert Fingerprinter(SEED).check_value == 0xB1D2C8DDFBE0028C
    assert Fingerprinter(SEED, method="blake2b").check_value == 0xB0539FA0BDCC10D8


def test_hash_of_the_reference_vector() -> None:
    """The expected value is that of MurmurHash3_x64_128 with seed 0, which many implementations state."""
    data = b"The quick brown fox jumps over the lazy dog"
    assert Fingerprinter(bytes(16)).hash(data) == 0xE34BBC7BBC071B6C


@pytest.mark.parametrize("method", METHODS)
def test_check_value_differs_by_seed_and_method(method: str) -> None:
    values = {Fingerprinter(bytes([i]) * 16, method=m).check_value for i in range(8) for m in METHODS}
    assert len(values) == 16
    assert Fingerprinter(SEED, method=method).check_value == Fingerprinter(SEED, method=method).check_value


@given(urls, st.sampled_from(METHODS), st.sampled_from(["domain", "host"]))
def test_bucket_is_that_of_the_domain(url: str, method: str, partition: str) -> None:
    """The top 16 bits are the bucket, computed from the domain or from the host, depending on the partition."""
    fingerprinter = Fingerprinter(SEED, method=method, partition=partition)
    name = url.split("/")[2]
    unit = registrable_domain(name) if partition == "domain" else name
    fingerprint = fingerprinter.fingerprint(url)
    assert fingerprint >> 48 == fingerprinter.bucket(name) == fingerprinter.hash(unit.encode()) >> 48
    assert fingerprinter.host_key(name) >> 48 == fingerprint >> 48
    assert fingerprinter.host_key(name) & LOW_48 == fingerprinter.hash(name.encode()) & LOW_48
    assert (
        fingerprinter.bucket("www." + name) == fingerprinter.bucket(name)
        or partition == "host"
        or unit == name
    )


@given(st.lists(urls, max_size=20), st.sampled_from(METHODS))
def test_fingerprints_of_many_urls(given_urls: list[str], method: str) -> None:
    fingerprinter = Fingerprinter(SEED, method=method)
    many = fingerprinter.fingerprints(given_urls)
    assert many.dtype == np.uint64
    assert many.tolist() == [fingerprinter.fingerprint(url) for url in given_urls]


def test_spellings_of_one_key_have_one_fingerprint() -> None:
    fingerprinter = Fingerprinter(SEED)
    assert fingerprinter.fingerprint("http://h/%7eu?PHPSESSID=1") == fingerprinter.fingerprint("http://h/~u")
    kept = Fingerprinter(SEED, strip_session_ids=False)
    assert kept.fingerprint("http://h/u?PHPSESSID=1") != kept.fingerprint("http://h/u")


def test_cache_of_hosts_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache of four hosts gives the same fingerprints as one that holds all hosts."""
    free = Fingerprinter(SEED)
    module = interpreted("crawler.urls.fingerprint")  # the compiled class hides its caches
    monkeypatch.setattr(module, "_HOSTS_MAX", 4)
    tight = module.Fingerprinter(SEED)
    for number in range(50):
        url = f"http://h{number % 7}.example{number % 3}.org/"
        assert tight.fingerprint(url) == free.fingerprint(url)
        assert len(tight._host_bits) <= 4
        assert len(tight._authority_bits) <= 4


@pytest.mark.parametrize(
    ("seed", "options"), [(b"short", {}), (SEED, {"method": "md5"}), (SEED, {"partition": "planet"})]
)
def test_invalid_settings_are_refused(seed: bytes, options: dict) -> None:
    with pytest.raises(ConfigError):
        Fingerprinter(seed, **options)


@given(st.lists(st.integers(0, 2**64 - 1), max_size=9))
def test_cache_keys_are_rotated_left_by_16(values: list[int]) -> None:
    turned = cache_keys(np.array(values, np.uint64))
    assert turned.tolist() == [(value << 16 | value >> 48) & (2**64 - 1) for value in values]
    assert cache_keys(values).tolist() == turned.tolist()


def test_repr_shows_no_seed() -> None:
    secret = bytes.fromhex("deadbeef" * 4)
    assert "dead" not in repr(Fingerprinter(secret))
    assert str(int.from_bytes(secret[:4], "little")) not in repr(Fingerprinter(secret))
