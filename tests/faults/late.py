"""Run `crawler` and send it a signal while the process ends, after the command has returned.

python -m tests.faults.late SIGNAL POINT crawl ...

POINT is `threads` for the moment when Python waits for its last threads, or `exit` for its exit functions,
which run later.
"""

import atexit
import os
import signal
import sys


def _send(number: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child, which has another id, sends nothing
        os.write(2, b"late signal\n")
        os.kill(pid, number)


def _plant(number: int, point: str) -> None:
    if point == "exit":
        atexit.register(_send, number, os.getpid())
        return
    from crawler.process.lifecycle import shutdown

    leave, pid = shutdown.leave, os.getpid()

    def send_and_leave(code: int) -> int:
        _send(number, pid)
        return leave(code)

    shutdown.leave = send_and_leave


if __name__ == "__main__":
    _plant(signal.Signals[sys.argv[1]], sys.argv[2])
    sys.argv[1:] = sys.argv[3:]
    from crawler.__main__ import main

    sys.exit(main())
