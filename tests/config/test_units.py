"""Test the parsing of times and sizes as users write them."""

from typing import Any

import pytest

from crawler.config.units import ENDLESS, ByteCount, Seconds, whole_number, whole_numbers


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        (30, 30.0),
        (0, 0.0),
        (0.25, 0.25),
        ("30", 30.0),
        ("250 ms", 0.25),
        ("5 s", 5.0),
        ("5min", 300.0),
        (" 5 M ", 300.0),
        ("1.5 h", 5400.0),
        ("2 d", 172_800.0),
        ("1e3", 1000.0),
        (".5 s", 0.5),
        ("5.", 5.0),
        (ENDLESS, float(ENDLESS)),
    ],
)
def test_valid_times(text: Any, seconds: float) -> None:
    found = Seconds.parse(text)
    assert isinstance(found, Seconds) and found == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("7 b", 7),
        ("2k", 2048),
        ("2 m", 2 << 20),
        ("2g", 2 << 30),
        ("2 kB", 2000),
        ("2 MB", 2_000_000),
        ("2 GB", 2_000_000_000),
        ("1.5 KiB", 1536),
        ("2 MiB", 2 << 20),
        ("2 GiB", 2 << 30),
    ],
)
def test_valid_sizes(text: Any, size: int) -> None:
    found = ByteCount.parse(text)
    assert isinstance(found, ByteCount) and found == size


@pytest.mark.parametrize("kind", [Seconds, ByteCount])
@pytest.mark.parametrize(
    "value",
    [
        -1,
        -0.5,
        float("inf"),
        float("nan"),
        ENDLESS * 2,
        True,
        None,
        [],
        "",
        "x",
        "5 parsecs",
        "-5",
        "5 5",
        ".",
        ". s",
        "1e400",
    ],
)
def test_invalid_times_and_sizes(kind: type[Seconds] | type[ByteCount], value: Any) -> None:
    with pytest.raises(ValueError, match="expected a|out of range"):
        kind.parse(value)


@pytest.mark.parametrize("size", [0.5, "0.5", "1e-4 kB", "0.0001 KiB"])
def test_a_size_below_a_byte_is_no_size_of_0(size: Any) -> None:
    """`--max-bytes 0.5` and `--limit-rate 0.5` once became 0, which is "no limit"."""
    with pytest.raises(ValueError, match="is less than a byte"):
        ByteCount.parse(size)
    assert ByteCount.parse("0 kB") == ByteCount.parse(0.0) == 0


@pytest.mark.parametrize(
    ("text", "value"),
    [("7", 7), ("-1", -1), ("1e6", 1_000_000), ("1_000", 1000), ("2.50e1", 25), ("-0.0", 0)],
)
def test_whole_numbers(text: str, value: int) -> None:
    found = whole_number(text)
    assert found == value and isinstance(found, int)


@pytest.mark.parametrize("text", ["", "x", "1.5", "1e-3", "nan", "inf", "1e400"])
def test_texts_that_are_no_whole_number(text: str) -> None:
    with pytest.raises(ValueError):
        whole_number(text)


def test_whole_numbers_in_a_tree_become_integers() -> None:
    tree = {"a": 1e6, "b": [2.0, 0.5, (True, 3.0)], "c": {"d": "1e6", "e": float("nan"), "f": 1e30}}
    found = whole_numbers(tree)
    expected = "{'a': 1000000, 'b': [2, 0.5, [True, 3]], 'c': {'d': '1e6', 'e': nan, 'f': 1e+30}}"
    assert repr(found) == expected and tree["a"] == 1e6


def test_a_time_unit_is_no_size_unit() -> None:
    for kind, text in ((Seconds, "5 KiB"), (ByteCount, "5 min")):
        with pytest.raises(ValueError, match="such as"):
            kind.parse(text)
