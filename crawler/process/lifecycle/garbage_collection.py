"""How memory is collected and given back: Python's garbage collector and the C heap.

Reference counts free nearly all objects of a crawl: 11,000 pages of the open web leave
some dozen cycles. The collector holds the loop for some 0.3 ms a thousand objects, 1 ms
where others push it out of the caches, so it runs seldom and looks at little: objects
that exist at the start of a crawl, or outlive a full collection, are frozen. A
collection looks at some 45,000 objects, however large the crawl is. A frozen cycle that
dies later is lost, such as that of a fetch under way at that instant.

Bodies come and go between objects that live for hours and leave holes in the C heap:
after ten minutes of the open web 65 of 172 MiB. `give_back` returns their free pages
to the system.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

GIVE_BACK_INTERVAL = 300.0  # seconds; the heap is locked for some 0.1 ms a MiB


def collect_rarely() -> None:
    """The crawler makes many short-lived objects and few cycles; importing it makes none."""
    gc.set_threshold(5_000, 2, 2)


@contextmanager
def frozen() -> Iterator[None]:
    """`freeze` until the block is left."""
    freeze()
    try:
        yield
    finally:
        thaw()


def freeze() -> None:
    """Leave out what is there now, modules, settings, opened stages, and what outlives a full collection.

    Until as many calls of `thaw`: the process may be somebody's whose crawl is a part of it.
    """
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_freeze_survivors)


def thaw() -> None:
    """A crawl is over; behind the last one, collections look at everything again."""
    gc.callbacks.remove(_freeze_survivors)
    if _freeze_survivors not in gc.callbacks:
        gc.unfreeze()


def _freeze_survivors(phase: str, collection: dict[str, Any]) -> None:
    if phase == "stop" and collection["generation"] == 2:
        gc.freeze()


def give_back() -> None:
    """Return free pages of the C heap to the system; any thread. Only glibc can."""
    import ctypes  # here: most crawls are over before

    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)
