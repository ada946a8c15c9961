"""How Python's garbage collector is set for all commands and processes.

Nearly all of what a crawl makes is freed by counting references. What is left
are cycles of the world's failures (exceptions and their frames), so the
collector runs seldom and looks at little: what exists at the start of a crawl
is frozen, and a full collection comes once some hundred thousand objects have
outlived two smaller ones. With 100,000, 20, 50 it never came in eight minutes. A
collection holds the loop for some 0.3 ms a thousand objects that it looks at: the
first generation is small, since most of what it finds stays.
"""

import gc


def collect_rarely() -> None:
    """The crawler makes many short-lived objects and few cycles; importing it makes none."""
    gc.set_threshold(20_000, 2, 60)


def freeze() -> None:
    """Leave out what is there now: modules, settings, opened stages."""
    gc.collect()
    gc.freeze()
