"""The table of the bugs that can be planted. `planted.py` and `planted_acts.py` enter their bugs into it."""

from collections.abc import Callable
from typing import Any

import msgspec

Patches = list[tuple[Any, str, Any]]
KILLS: dict[str, Any] = {"faults": ("kill", "power")}
POWER: dict[str, Any] = {"faults": ("power",)}


class Plant(msgspec.Struct, frozen=True):
    """A bug that can be planted.

    `rule` is the rule that the bug breaks. `patches` returns the patches (object, name, replacement) that
    make the bug. `settings` are the changes to `planted.SETTINGS` with which the bug can be found.
    """

    rule: str
    patches: Callable[[], Patches]
    settings: dict[str, Any]


PLANTS: dict[str, Plant] = {}


def plant(rule: str, **settings: Any) -> Callable[[Callable[[], Patches]], Callable[[], Patches]]:
    """Return a decorator that enters a function `some_bug` into the table as the bug `some-bug`."""

    def enter(patches: Callable[[], Patches]) -> Callable[[], Patches]:
        PLANTS[patches.__name__.replace("_", "-")] = Plant(rule, patches, settings)
        return patches

    return enter
