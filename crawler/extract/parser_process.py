"""Runs a parser child for callers that block until it answers: exports, the report, recovery.

The child has the program and the limits of the fetch loop's, so extracting a stored page gives the same result as
in the crawl. It is started for the first page that needs it, and again after its death (`worker.py`).
"""

import socket
import subprocess
import weakref
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import early_title, prepare, prepare_scan
from crawler.extract.parser_child import LENGTH, Job, limits_of, program, read_here
from crawler.extract.parser_guard import Judgement, judge
from crawler.extract.scan import scan, scan_utf8
from crawler.extract.worker import START_SECONDS, WALL_FACTOR
from crawler.records import Extracted
from crawler.shadow_roots import open_shadow_roots


class ParserProcess:
    """Extracts pages as `Worker` does: harmless pages in this process, other pages in a child.

    An object may be used only by the process that made it.
    """

    def __init__(self, config: ExtractConfig) -> None:
        self._config = config
        self._child: tuple[socket.socket, BinaryIO] | None = None
        self._end: Callable[[], object] = lambda: None
        self.deaths = 0

    def extract(self, content: bytes, page: Context, *, careful: bool = False) -> Extracted:
        """Extract a page. This never fails.

        Args:
            careful: parse nothing in this process.
        """
        if not careful and len(content) <= self._config.inline_bytes_max:
            utf8, encoding = prepare_scan(content, page)
            found = read_here(utf8, encoding, page, self._config)
            if isinstance(found, Extracted):
                return found
            if found is Judgement.EXCESSIVE:
                return scan_utf8(open_shadow_roots(utf8), encoding, page, self._config)
        try:
            return self._ask(Job(page, content))
        except (OSError, EOFError, msgspec.MsgspecError):
            self.deaths += 1
            self.close()
            return scan(content, page, self._config)

    def title(self, content: bytes, page: Context, *, careful: bool = False) -> str:
        """Return the title that `extract` would find. This nearly always takes a tenth of the time of `extract`."""
        if not careful:
            utf8, _ = prepare(content, page)
            judged = judge(utf8, self._config)
            if judged is not Judgement.EXCESSIVE and (title := early_title(utf8)) is not None:
                return title
        return self.extract(content, page, careful=careful).title

    def close(self) -> None:
        """End the child. The child also ends when this object is deleted."""
        self._child = None
        self._end()

    def _ask(self, job: Job) -> Extracted:
        link, answers = self._started()
        request = msgspec.msgpack.encode(job)
        link.sendall(LENGTH.pack(len(request)) + request)
        (length,) = LENGTH.unpack(_exactly(answers, LENGTH.size))
        return msgspec.msgpack.decode(_exactly(answers, length), type=Extracted)

    def _started(self) -> tuple[socket.socket, BinaryIO]:
        if self._child is None:
            command, environment = program()
            ours, theirs = socket.socketpair()
            end = theirs.fileno()
            try:
                process = subprocess.Popen(command, stdin=end, stdout=end, env=environment)
            except OSError:
                ours.close()
                raise
            finally:
                theirs.close()
            ours.settimeout(START_SECONDS + WALL_FACTOR * self._config.cpu_seconds_max)
            self._child = ours, ours.makefile("rb")
            self._end = weakref.finalize(self, _end, process, *self._child)
            ours.sendall(limits_of(self._config))
        return self._child

    def __repr__(self) -> str:
        return f"ParserProcess(running={self._child is not None}, deaths={self.deaths})"


def _end(process: subprocess.Popen[bytes], link: socket.socket, answers: BinaryIO) -> None:
    answers.close()
    link.close()
    process.kill()
    process.wait()


def _exactly(answers: BinaryIO, length: int) -> bytes:
    data = answers.read(length)
    if len(data) < length:
        raise EOFError
    return data
