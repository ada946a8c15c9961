"""Ends a program without freeing its memory, because freeing would take as long as crawling 60 pages."""

import atexit
import os
import sys
import threading


def end(code: int) -> None:
    """Run the exit handlers, write the buffered output, and end the process.

    If a thread is still running or the output cannot be written, return, so that the interpreter ends the
    process as usual.
    """
    if any(thread is not threading.main_thread() and not thread.daemon for thread in threading.enumerate()):
        return
    try:
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
    except (OSError, ValueError):
        return
    os._exit(code)
