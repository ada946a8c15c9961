"""Test the keys: a range of buckets is a range of keys, and only keys.py has prefixes."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.storage import keys

ROOT = Path(keys.__file__).resolve().parent.parent


def test_each_family_has_an_owner_and_a_prefix_of_two_bytes() -> None:
    for prefix, family in keys.FAMILIES.items():
        assert (ROOT / family.owner).is_dir(), family
        assert prefix.startswith(keys.META) or (len(prefix) == 2 and prefix.endswith(b"/")), family


@pytest.mark.parametrize(
    ("key", "owner"),
    [
        (b"u/12345678", "pages"),
        (b"m/scope", "urlfilter"),
        (b"m/outbox/p1", "splitter"),
        (b"m/seeds/12345678", "process"),
        (b"m/unknown", None),
        (b"m/scopes", None),
        (b"Z/1", None),
        (b"", None),
        (b"u", None),
    ],
)
def test_a_key_belongs_to_its_family(key: bytes, owner: str | None) -> None:
    family = keys.family(key)
    assert (None if family is None else family.owner) == owner


@given(st.sampled_from(keys.BY_BUCKET), st.integers(0, 65535), st.integers(0, 65536), st.binary(max_size=12))
def test_a_range_of_buckets_is_a_range_of_keys(prefix: bytes, bucket: int, end: int, rest: bytes) -> None:
    """Wherever a range of buckets ends, each record moves to the process that owns its bucket, and no record stays."""
    key = prefix + bucket.to_bytes(2, "big") + rest
    assert keys.bucket(key) == bucket
    for first in (0, bucket, min(bucket + 1, 65535)):
        start, stop = keys.bucket_range(prefix, first, end)
        assert (start <= key < stop) == (first <= bucket < end)


def test_prefixes_are_written_only_in_keys_py() -> None:
    """All prefixes are defined in `storage/keys.py`. Keys with other prefixes would be neither moved nor checked.

    Prefixes of earlier formats are defined in `upgrade/`, the only code that reads them.
    """
    literal = re.compile(r"""\bb["'](?:[a-z]/|m/[a-z]+)["']""")
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in ROOT.rglob("*.py")
        if path != Path(keys.__file__) and not {"bench", "upgrade"} & set(path.parts)
        for match in literal.finditer(path.read_text(encoding="utf-8"))
    ]
    assert not found
