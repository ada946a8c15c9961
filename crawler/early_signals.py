"""Signals that come before the crawl has begun, noted from the first lines of the program.

The imports of a crawl take longer than a supervisor's patience. A SIGTERM or SIGHUP
that comes meanwhile is kept for the command, which stops as soon as it has begun; a
second one ends the process at once. This module is imported first and imports nearly
nothing.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NUMBERS = (signal.SIGTERM, signal.SIGHUP)
AT_ONCE = 130  # exit code behind a second signal
_came: list[int] = []


def install() -> None:
    """From now on both signals are noted; only in the main thread of a program."""
    for number in NUMBERS:
        signal.signal(number, _note)


def has_signal() -> bool:
    """Whether one was noted."""
    return bool(_came)


def forget() -> None:
    """A fork has none of what came to its parent."""
    _came.clear()


def deliver() -> None:
    """Nothing here stops in order: let both signals end the process again, one that was noted now."""
    for number in NUMBERS:
        if signal.getsignal(number) is _note:
            signal.signal(number, signal.SIG_DFL)
    if _came:
        os.kill(os.getpid(), _came[0])


@contextmanager
def noted() -> Iterator[None]:
    """The same for a part of a program, and as it was before afterwards."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        install()
    except ValueError:  # not the main thread, which gets all signals
        before = {}
    try:
        yield
    finally:
        forget()
        for number, handler in before.items():
            signal.signal(number, handler)


def _note(number: int, _frame: object) -> None:
    if _came:
        os._exit(AT_ONCE)
    _came.append(number)
    if sys.stderr is not None:
        os.write(2, b"stopping as soon as the crawl has begun\n")
