"""Entry point of `crawler` and `python -m crawler`. Handles signals before anything else is imported."""

import atexit
import os
import sys
import threading

from crawler import early_signals


def main() -> int:
    """Run the command line and return its exit code."""
    early_signals.install()
    _open_closed_streams()
    try:
        from crawler import cli

        code = cli.main()
    except KeyboardInterrupt:  # a signal arrived during the imports
        return early_signals.interrupted()
    _end(code)
    return code


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller closed.

    Otherwise a file of the crawl would get the number of that stream, and errors of libraries would be written to it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode))  # noqa: SIM115  a descriptor cannot be opened by a path


def _end(code: int) -> None:
    """End the process without freeing its memory, because freeing would take as long as crawling 60 pages.

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


if __name__ == "__main__":
    sys.exit(main())
