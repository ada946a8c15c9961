"""How Python's garbage collector is set for all commands and processes."""

import gc


def collect_rarely() -> None:
    """The crawler makes many short-lived objects and few cycles; importing it makes none."""
    gc.set_threshold(100_000, 20, 50)
