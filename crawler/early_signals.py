"""Signals that arrive before the crawl has begun; handled from the first lines of the program on.

Importing the crawler takes longer than a supervisor may wait. A SIGTERM or SIGHUP that
arrives meanwhile is remembered for the command, which stops as soon as it has begun. A
second one ends the process at once. This module is imported first and imports almost
nothing.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

NUMBERS = (signal.SIGTERM, signal.SIGHUP)
AT_ONCE = 130  # exit code after a second signal
_came: list[int] = []


def install() -> None:
    """Remember both signals from now on. Only works in the main thread of a program."""
    for number in NUMBERS:
        signal.signal(number, _note)


def has_signal() -> bool:
    """Return whether a signal has arrived."""
    return bool(_came)


def forget() -> None:
    """Forget the signals of the parent process, after a fork."""
    _came.clear()


def deliver() -> None:
    """Let both signals end the process again, for commands without a clean stop; deliver one that already arrived."""
    for number in NUMBERS:
        if signal.getsignal(number) is _note:
            signal.signal(number, signal.SIG_DFL)
    if _came:
        os.kill(os.getpid(), _came[0])


@contextmanager
def noted() -> Iterator[None]:
    """Remember both signals while the context is entered, and restore the previous handlers afterwards."""
    before = {number: signal.getsignal(number) for number in NUMBERS}
    try:
        install()
    except ValueError:  # not the main thread, which receives all signals
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
