"""Reads numbers that users type, for all commands and servers."""

import math
from collections.abc import Callable
from typing import Any, TypeVar

from crawler.errors import UsageError

Number = TypeVar("Number", int, float)
KINDS = {int: "whole number", float: "number"}
_SHOWN_MAX = 40  # maximum number of characters of a wrong text that a message shows


def within(
    option: str, value: float, least: float = -math.inf, most: float = math.inf, *, above: float = -math.inf
) -> None:
    """Check the number given for an option or a parameter.

    Raises:
        UsageError: the number is not finite, less than `least`, greater than `most`, or not greater than `above`.
    """
    if expected := out_of_range(value, least, most, above):
        raise UsageError(f"{option}: {expected}")


def number_of(
    option: str,
    text: str,
    kind: type[Number],
    least: float = -math.inf,
    most: float = math.inf,
    *,
    above: float = -math.inf,
) -> Number:
    """Return the number that is the value of an option or a parameter, or a part of it.

    Raises:
        UsageError: the text is not a number, or `within` rejects the number.
    """
    try:
        value = READERS[kind](text)
    except ValueError:
        raise UsageError(f"{option}: {not_a_number(kind, text)}") from None
    within(option, value, least, most, above=above)
    return value


def not_a_number(kind: type[int] | type[float], text: str) -> str:
    """Return which kind of number was expected instead of a text that is not a number."""
    cut = "..." if len(text) > _SHOWN_MAX else ""
    return f"expected a {KINDS[kind]}, got {text[:_SHOWN_MAX]!r}{cut}"


def out_of_range(
    value: float, least: float = -math.inf, most: float = math.inf, above: float = -math.inf
) -> str:
    """Return which number was expected instead of `value`; "" if `value` is finite and within the bounds."""
    bounds = (
        ("", isinstance(value, int) or math.isfinite(value)),
        (f" > {_written(above)}", value > above),
        (f" >= {_written(least)}", value >= least),
        (f" <= {_written(most)}", value <= most),
    )
    wanted = next((bound for bound, holds in bounds if not holds), None)
    if wanted is None:
        return ""
    kind = "a whole number" if isinstance(value, int) else "a number" if wanted else "a finite number"
    return f"expected {kind}{wanted}, got {_written(value)}"


def _written(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.15g}"


def _whole(text: str) -> int:
    from crawler.config.units import whole_number  # imported here because it loads slowly

    return whole_number(text)


def _any(text: str) -> float:
    from crawler.config.units import number  # imported here because it loads slowly

    try:
        return float(number(text))
    except OverflowError:
        raise ValueError(text) from None


READERS: dict[type, Callable[[str], Any]] = {int: _whole, float: _any}
