"""Checks, before an event loop runs, that the system allows its threads.

libuv aborts the process without a message if it cannot start the threads of its pool.
"""

import threading

from crawler.errors import StoreError

# Threads of a process that crawls or serves: four of libuv, and those of the store, of commits and of executors.
THREADS = 8


def check_threads() -> None:
    """Check that this process may start the threads that it needs, by starting them.

    Raises:
        StoreError: the system allows fewer threads, or has no memory for them.
    """
    gate = threading.Lock()  # the threads wait for it, because waiting for an Event needs memory
    gate.acquire()
    started: list[threading.Thread] = []
    try:
        for _ in range(THREADS):
            thread = threading.Thread(target=_pass, args=(gate,), daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError) as error:
        raise StoreError(
            f"this process may start only {len(started)} more threads, but needs {THREADS}; raise the limit on "
            "processes (ulimit -u, or pids of the cgroup) or on memory"
        ) from error
    finally:
        gate.release()
        for thread in started:
            thread.join()


def _pass(gate: threading.Lock) -> None:
    with gate:
        pass
