"""The process that parses pages that the fetch loop must not parse (`worker.py` starts it).

The process is a separate program or a fork of its parent. The first line of its input contains its
configuration. The process answers each frame with one frame. A frame is 4 bytes that give a length
(big-endian), and that many bytes of msgpack. A page is sent as an array of its context and its bytes; the
answer is what was extracted. The pieces of a map (`map_stream.py`) get one answer, after the last piece.

The kernel limits the memory of the process, and ends the process when a page takes more CPU time than
allowed. When the CPU time is used up, a profiling timer sends a signal that the process does not handle. So
the limit on CPU time works even while the parser holds the interpreter lock. The process exits when its input
ends, so it never outlives its parent.
"""

import ctypes
import json
import os
import resource
import signal
import struct
import sys
from pathlib import Path
from typing import BinaryIO

import msgspec
from selectolax.lexbor import SelectolaxError

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.documents import Document, read_document
from crawler.extract.links import parse, prepare_scan
from crawler.extract.map_stream import MapPiece, MapReaders
from crawler.extract.parser_guard import Judgement, judge, strip, without_formatting_attributes
from crawler.extract.scan import scan_utf8
from crawler.extract.scanned import scanned
from crawler.records import Extracted
from crawler.shadow_roots import open_shadow_roots

NICE = 5  # niceness: the fetch loop has priority over the child, because all pages wait for the loop
LENGTH = struct.Struct(">I")
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # malloc.h
# After a page larger than this, freed memory is returned to the system. One in a hundred pages parsed here is
# so large.
_LARGE_BYTES = 2 << 20


class Job(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=True):
    """A page to parse, or, if `document` is given, a document to read."""

    page: Context
    content: bytes
    document: Document | None = None


def limits_of(config: ExtractConfig) -> bytes:
    """Return the first line of a child's input. The line contains the configuration section."""
    return json.dumps({name: getattr(config, name) for name in config.__struct_fields__}).encode() + b"\n"


def run(requests: BinaryIO, answers: BinaryIO) -> int:
    """Serve pages until the input ends, and return the exit code. The first line of the input contains the limits."""
    line = requests.readline()
    if not line:
        return 0
    config = ExtractConfig(**json.loads(line))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C
    resource.setrlimit(resource.RLIMIT_DATA, (_data_bytes() + config.worker_memory_bytes_max,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(NICE)
    _keep_freed_memory()
    try:
        serve(requests, answers, config)
    except (MemoryError, SelectolaxError):  # the parser reports a lack of memory as SelectolaxError
        return 1
    return 0


def _keep_freed_memory() -> None:
    """Keep freed memory for the next page (glibc only); `serve` returns it after pages over `_LARGE_BYTES`."""
    if mallopt := getattr(ctypes.CDLL(None), "mallopt", None):
        mallopt(_TRIM_THRESHOLD, 64 << 20)
        mallopt(_MMAP_THRESHOLD, 16 << 20)


def _data_bytes() -> int:
    """Return the number of bytes that count against RLIMIT_DATA: a forked process begins with its parent's."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except OSError:  # this is not Linux, so the child is a separate program, which starts with little memory
        return 0


def serve(requests: BinaryIO, answers: BinaryIO, config: ExtractConfig) -> None:
    """Answer each frame of `requests`."""
    decoder: msgspec.msgpack.Decoder[Job | MapPiece] = msgspec.msgpack.Decoder(Job | MapPiece)
    maps = MapReaders(config.cpu_seconds_max)
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        job = decoder.decode(requests.read(length))
        if isinstance(job, MapPiece):
            found = maps.take(job)
        else:
            signal.setitimer(signal.ITIMER_PROF, config.cpu_seconds_max)
            found = read(job, config)
            signal.setitimer(signal.ITIMER_PROF, 0)
        if found is not None:
            packed = msgspec.msgpack.encode(found)
            answers.write(LENGTH.pack(len(packed)) + packed)
            answers.flush()
            del packed
        del job, found  # free the page before waiting for the next one
        if length > _LARGE_BYTES and trim is not None:
            trim(0)


def read(job: Job, config: ExtractConfig) -> Extracted:
    """Extract the page. If the page exceeds the parser's limits, use a plain scan."""
    if job.document is not None:
        return read_document(job.content, job.document, config)
    utf8, encoding = prepare_scan(job.content, job.page)
    if (found := scanned(utf8, encoding, job.page, config)) is not None:
        return found
    utf8 = open_shadow_roots(utf8)
    if judge(utf8, config) is Judgement.EXCESSIVE:
        return scan_utf8(utf8, encoding, job.page, config)
    return parse(strip(utf8), encoding, job.page, config)


def read_here(utf8: bytes, encoding: str, page: Context, config: ExtractConfig) -> Extracted | Judgement:
    """Extract a page that `prepare_scan` returned, if the page is harmless. Otherwise, return APART or EXCESSIVE."""
    if (found := scanned(utf8, encoding, page, config)) is not None:
        return found
    utf8 = open_shadow_roots(utf8)
    judgement = judge(utf8, config)
    if judgement is Judgement.STRIP:
        utf8 = without_formatting_attributes(utf8)
    elif judgement is not Judgement.SAFE:
        return judgement
    return parse(utf8, encoding, page, config)


def program() -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that start this module as a program."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    return [sys.executable, "-m", "crawler.extract.parser_child"], {**os.environ, "PYTHONPATH": path}


if __name__ == "__main__":
    sys.exit(run(sys.stdin.buffer, sys.stdout.buffer))
