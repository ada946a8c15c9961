"""One line on standard error that tells how far long work is.

On a terminal, the line is redrawn twice per second, and disappears when the work ends. Elsewhere, a new line is printed
every few seconds.
"""

import sys
import threading
import time
from collections.abc import Callable

from crawler.cli.progress import LIVE_INTERVAL, PLAIN_INTERVAL
from crawler.printable import printable, raw_stream


class StatusLine:
    """Draws the line."""

    def __init__(self, *, quiet: bool) -> None:
        self.quiet = quiet
        self._live = sys.stderr.isatty()
        self._drawn = False
        self.interval = LIVE_INTERVAL if self._live else PLAIN_INTERVAL  # seconds between two updates

    def draw(self, text: str) -> None:
        if not self._live:
            print(f"crawler: {printable(text)}", file=sys.stderr, flush=True)
            return
        print(f"\r\x1b[K{printable(text)} ", end="", file=raw_stream(sys.stderr), flush=True)
        self._drawn = True

    def clear(self) -> None:
        if self._drawn:
            print("\r\x1b[K", end="", file=raw_stream(sys.stderr), flush=True)
            self._drawn = False


class StepProgress:
    """Draws how far the work is. The work calls this object often; no thread is started, so it may fork."""

    def __init__(self, *, quiet: bool) -> None:
        self._line = StatusLine(quiet=quiet)
        self._began = self._last = time.monotonic()

    def show(self, text: Callable[[float], str]) -> None:
        """Draw `text`, given the seconds since the start, if the line has not been drawn for an interval."""
        now = time.monotonic()
        if not self._line.quiet and now - self._last >= self._line.interval:
            self._last = now
            self._line.draw(text(now - self._began))

    def end(self) -> None:
        self._line.clear()


class CountProgress(StepProgress):
    """Draws a count of pages and its rate."""

    def __call__(self, count: int) -> None:
        self.show(lambda seconds: f"{count:,} done, {count / seconds:,.0f}/s")


class ReadProgress(StepProgress):
    """Draws the name of what is read, and how much of it has been read."""

    def __call__(self, what: str, done: int, whole: int = 0) -> None:
        self.show(lambda _: f"{what}: {done:,} of {whole:,}" if whole else f"{what}: {done:,}")


class WaitProgress:
    """Draws `text()` and the time so far, while the work may wait for a server. Use it as a context manager."""

    def __init__(self, text: Callable[[], str], *, quiet: bool) -> None:
        self._text, self._line = text, StatusLine(quiet=quiet)
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="progress", daemon=True)

    def __enter__(self) -> "WaitProgress":
        if not self._line.quiet:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if not self._line.quiet:
            self._thread.join()
        self._line.clear()

    def print(self, text: str) -> None:
        """Print a line of output on standard output, unless the command is quiet."""
        if not self._line.quiet:
            with self._lock:
                self._line.clear()
                print(text, flush=True)

    def _run(self) -> None:
        while not self._ended.wait(self._line.interval):
            with self._lock:
                if text := self._text():
                    self._line.draw(f"{text}, {time.monotonic() - self._began:,.0f} s")
