"""Runs `crawler` and sends it a signal while the process ends, after the last line of the command has run.

python -m tests.faults.late SIGNAL crawl ...
"""

import atexit
import os
import signal
import sys


def _send(number: int, pid: int) -> None:
    if os.getpid() == pid:  # not a child that was forked
        os.write(2, b"late signal\n")
        os.kill(pid, number)


if __name__ == "__main__":
    atexit.register(_send, signal.Signals[sys.argv[1]], os.getpid())
    sys.argv[1:] = sys.argv[2:]
    from crawler.__main__ import main

    sys.exit(main())
