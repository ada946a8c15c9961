"""The limit of the waits in tests, and a wait for a condition."""

import subprocess
import time
from collections.abc import Callable
from typing import Any

# Number of seconds after which a wait for a server, a process or a browser has failed. It matters only if the
# test fails, so it is long enough for two cores at a load of 30.
WAIT_MAX = 240.0


def until(found: Callable[[], object], process: "subprocess.Popen[Any] | None" = None) -> None:
    """Wait until a condition is true. If a process is given, assert that it runs meanwhile."""
    give_up = time.monotonic() + WAIT_MAX
    while not found():
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < give_up
        time.sleep(0.02)
