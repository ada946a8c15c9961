"""Numbers of the configuration: times and sizes with units, and the ranges of other numbers.

A time is a number of seconds, or text such as "5 min". A size is a number of bytes, or text such as "10 MiB".
A whole number may be written as 1e6. Infinity and NaN are rejected.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from msgspec import Meta

ENDLESS = 1 << 62  # the largest number that the configuration accepts

Count = Annotated[int, Meta(ge=0, le=ENDLESS)]
Positive = Annotated[int, Meta(ge=1, le=ENDLESS)]
Port = Annotated[int, Meta(ge=1, le=65_535)]
Limit = Annotated[int, Meta(ge=-1, le=ENDLESS)]  # -1 = none
Number = Annotated[float, Meta(ge=0.0, le=float(ENDLESS))]
Delays = Annotated[tuple[Number, ...], Meta(min_length=1)]  # seconds; the last delay is repeated

_TIME_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_UNITS = {
    "": 1,
    "b": 1,
    "k": 1 << 10,  # k, m and g mean powers of 1,024, as in wget and curl
    "m": 1 << 20,
    "g": 1 << 30,
    "kb": 1000,
    "mb": 10**6,
    "gb": 10**9,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
}
_QUANTITY = re.compile(r"\s*((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?)\s*([a-z]*)\s*", re.IGNORECASE)


_DECIMAL = re.compile(r"[+-]?(?:[0-9]{1,99}\.?[0-9]{0,99}|\.[0-9]{1,99})")
_SHOWN_MAX = 40  # maximum number of characters of a wrong value that a message shows


class Seconds(float):
    """A time in seconds, written as a number or with ms, s, min, h or d."""

    @classmethod
    def parse(cls, value: object) -> "Seconds":
        return cls(_quantity(value, _TIME_UNITS, 'a time such as 30, "5 min" or "24 h"'))


class ByteCount(int):
    """A size in bytes, written as a number or with kB, MB, GB, KiB (k), MiB (m) or GiB (g)."""

    @classmethod
    def parse(cls, value: object) -> "ByteCount":
        size = _quantity(value, _SIZE_UNITS, 'a size such as 4096 or "10 MiB"')
        if 0 < size < 1:  # as 0, it would mean that there is no limit
            raise ValueError(f"{shown(value)} is less than a byte")
        return cls(size)


def from_toml(text: str) -> Any:
    """Return the value that a text in TOML syntax has; the text itself if it has none.

    Numbers may also be written as `.5`, `5.` and `05`, which TOML does not allow.
    """
    import tomllib  # imported here because commands without settings do not need it

    try:
        return text if "\n" in text else tomllib.loads(f"v = {text}")["v"]
    except (ValueError, RecursionError):
        return _decimal(text) if _DECIMAL.fullmatch(text) else text


def _decimal(text: str) -> int | float:
    return float(text) if "." in text else int(text)


def number(text: str) -> int | float:
    """Return the number that a text is, in the syntax of settings; raise ValueError if it is none."""
    value = from_toml(text.strip())
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number: {text!r}")
    return value


def whole_number(text: str) -> int:
    """Return the whole number in `text`, which may be written as 1e6; raise ValueError if there is none."""
    value = number(text)
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"not a whole number: {text!r}")
    return int(value)


def whole_numbers(value: Any) -> Any:
    """Return a copy of a value of the configuration in which whole numbers that were written as 1e6 are integers."""
    if isinstance(value, Mapping):
        return {key: whole_numbers(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [*map(whole_numbers, value)]
    is_whole = isinstance(value, float) and abs(value) <= ENDLESS and value.is_integer()
    return int(value) if is_whole else value


# A time after which something is given up. With 0, everything would be given up at once, so 0 is rejected.
Timeout = Annotated[Seconds, Meta(extra={"least": 0.001})]
Size = Annotated[ByteCount, Meta(extra={"least": 1})]  # a size that is useless if it is 0


def _quantity(value: object, units: Mapping[str, float], wanted: str) -> float:
    if isinstance(value, str):
        value = _number_or_text(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= ENDLESS:
        return value
    match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
    if match is None or match[2].lower() not in units:
        raise ValueError(f"expected {wanted}, got {shown(value)}")
    quantity = float(match[1]) * units[match[2].lower()]
    if quantity > ENDLESS:
        raise ValueError(f"{shown(value)} is out of range")
    return quantity


def _number_or_text(text: str) -> float | str:
    try:
        return number(text)
    except ValueError:
        return text


def shown(value: object) -> str:
    """Return a wrong value for a message, written as in TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return f"{value[:_SHOWN_MAX]!r}{'...' if len(value) > _SHOWN_MAX else ''}"
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a section"
    return "a list" if isinstance(value, Sequence) else str(value)[:_SHOWN_MAX]
