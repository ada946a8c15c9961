"""Run `crawler` and send it a signal while the process ends, after the command has returned.

python -m tests.faults.late SIGNAL crawl ...
"""

import atexit
import os
import signal
import sys


def _send(number: int, pid: int) -> None:
    if os.getpid() == pid:  # not in a forked child
        os.write(2, b"late signal\n")
        os.kill(pid, number)


if __name__ == "__main__":
    atexit.register(_send, signal.Signals[sys.argv[1]], os.getpid())
    sys.argv[1:] = sys.argv[2:]
    from crawler.__main__ import main

    sys.exit(main())
