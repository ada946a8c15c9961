"""Runs `crawler` and sends it a signal while the interpreter frees its modules, after the last line of Python has run.

python -m tests.faults.late SIGNAL crawl ...
"""

import os
import signal
import sys
from collections.abc import Callable


class _AtEnd:
    """An object that sends the signal when it is freed; it holds the functions that it needs then."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._kill: Callable[[int, int], None] = os.kill
        self._write: Callable[[int, bytes], int] = os.write
        self._pid = os.getpid()
        self._own_pid: Callable[[], int] = os.getpid

    def __del__(self) -> None:
        if self._own_pid() == self._pid:  # not a child that was forked
            self._write(2, b"late signal\n")
            self._kill(self._pid, self._number)


if __name__ == "__main__":
    held = _AtEnd(signal.Signals[sys.argv[1]])
    sys.argv[1:] = sys.argv[2:]
    from crawler.__main__ import main

    sys.exit(main())
