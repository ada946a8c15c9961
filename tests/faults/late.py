"""Run `crawler` and send it a signal after the crawl has ended, while the crawl closes or the process ends.

python -m tests.faults.late SIGNAL POINT crawl ...

POINT is `closing` for the moment when the crawl begins to close, `threads` for the moment when Python waits
for its last threads, or `exit` for its exit functions, which run later.
"""

import atexit
import os
import signal
import sys


def _send(number: int, pid: int) -> None:
    if os.getpid() == pid:  # a forked child, which has another id, sends nothing
        os.write(2, b"late signal\n")
        os.kill(pid, number)


def _plant_at_closing(number: int) -> None:
    from crawler.api import Crawl

    close, pid = Crawl.__aexit__, os.getpid()

    async def send_and_close(self: Crawl, *error: object) -> None:
        _send(number, pid)
        await close(self, *error)  # type: ignore[arg-type]

    Crawl.__aexit__ = send_and_close  # type: ignore[method-assign,assignment]


def _plant(number: int, point: str) -> None:
    if point == "exit":
        atexit.register(_send, number, os.getpid())
        return
    if point == "closing":
        _plant_at_closing(number)
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
