"""Determines when Python's garbage collector runs, and when free memory of the C heap is returned to the system.

Reference counting frees nearly all objects of a crawl: 11,000 pages of the open web leave a few dozen cycles.
The collector blocks the event loop for about 0.3 ms per thousand objects (1 ms if other programs evict them
from the CPU caches). So the collector runs seldom and on few objects. Objects that exist at the start of a
crawl, or that survive a full collection, are frozen. The collector ignores frozen objects. A collection
examines about 45,000 objects, however large the crawl is. A frozen cycle that becomes garbage later is never
freed, for example a cycle of a fetch that was in flight at the time of freezing.

Bodies are allocated and freed between objects that live for hours. The freed bodies leave holes in the C
heap. After a crawl of the open web for ten minutes, 65 MiB of a heap of 172 MiB were holes. `give_back`
returns the free memory pages to the system. `map_large_blocks` keeps bodies of more than a mebibyte out of
the heap. By default, once a large block has been freed, glibc allocates later blocks of this size in the
heap. In a crawl that read large sitemaps, such blocks left holes of 190 MiB.
"""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

SETTLED = 1.0  # seconds before `map_large_blocks`; a crawl that ends earlier need not import ctypes
_MMAP_THRESHOLD, _LARGE_BYTES = -3, 1 << 20  # M_MMAP_THRESHOLD of <malloc.h>
# Seconds between two calls of `give_back`. The calls are rare, because each call locks the heap for about 0.1
# ms per MiB.
GIVE_BACK_INTERVAL = 300.0


def collect_rarely() -> None:
    """Make the collector run less often, because a crawl makes many short-lived objects but few cycles."""
    gc.set_threshold(5_000, 2, 2)


def collect_briefly() -> None:
    """Make a full collection examine at most about 20,000 objects (4 ms), because clients wait meanwhile.

    The bound holds only inside `frozen`, where objects that survive a collection are exempt from later
    collections.
    """
    gc.set_threshold(2_000, 2, 2)


@contextmanager
def uncollected() -> Iterator[None]:
    """Import modules while the collector is off, and exclude the imported objects from all later collections.

    Modules never become garbage. Without this, collections take an eighth of the CPU time of a short command.
    If everything was imported before, nothing is excluded. A program that runs many commands would otherwise
    keep the garbage of each command.
    """
    before = len(sys.modules)
    gc.disable()
    try:
        yield
        if len(sys.modules) > before:
            gc.freeze()
    finally:
        gc.enable()


@contextmanager
def settings_kept() -> Iterator[None]:
    """On exit, restore whether the collector is on, and its thresholds. For programs that run commands."""
    enabled, thresholds = gc.isenabled(), gc.get_threshold()
    try:
        yield
    finally:
        (gc.enable if enabled else gc.disable)()
        gc.set_threshold(*thresholds)


@contextmanager
def frozen() -> Iterator[None]:
    """Call `freeze` on entry and `thaw` on exit."""
    freeze()
    try:
        yield
    finally:
        thaw()


def freeze() -> None:
    """Exclude the existing objects from garbage collection, and later those that survive a full collection.

    Calls may be nested: the last call of `thaw` includes the objects again. This matters because a crawl may be
    only a part of a user's program.
    """
    gc.collect()
    gc.freeze()
    gc.callbacks.append(_freeze_survivors)


def thaw() -> None:
    """Undo one `freeze`. When all calls of `freeze` are undone, collections examine all objects again."""
    gc.callbacks.remove(_freeze_survivors)
    if _freeze_survivors not in gc.callbacks:
        gc.unfreeze()


def _freeze_survivors(phase: str, collection: dict[str, Any]) -> None:
    if phase == "stop" and collection["generation"] == 2:
        gc.freeze()


def give_back() -> None:
    """Return free pages of the C heap to the system. Any thread may call this. Only glibc supports it."""
    import ctypes  # imported here, because most crawls end before the first call

    if trim := getattr(ctypes.CDLL(None), "malloc_trim", None):
        trim(0)


def map_large_blocks() -> None:
    """Give each large block its own mapping, so that it is returned to the system when it is freed. Only for glibc."""
    import ctypes

    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
