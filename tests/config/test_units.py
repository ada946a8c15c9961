"""Test the parsing of times and sizes as users write them."""

from typing import Any

import pytest

from crawler.config.units import ENDLESS, ByteCount, Seconds


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


def test_a_time_unit_is_no_size_unit() -> None:
    for kind, text in ((Seconds, "5 KiB"), (ByteCount, "5 min")):
        with pytest.raises(ValueError, match="such as"):
            kind.parse(text)
