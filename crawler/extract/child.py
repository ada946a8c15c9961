"""The process that parses what the fetch loop must not (`worker.py` starts it).

It answers frames on its standard input with frames on its standard output: 4
bytes of length, big-endian, and that many bytes of msgpack. A page is an array
of its context and its bytes; the answer is what was found.

The kernel ends it when a page takes more CPU than allowed (a profiling timer
whose signal nobody catches, so it works while the parser holds the
interpreter), and limits its memory. It ends by itself when its input does,
so it never outlives its parent.
"""

import json
import resource
import signal
import struct
import sys
from typing import BinaryIO

import msgspec
from selectolax.lexbor import SelectolaxError

from crawler.config import ExtractConfig
from crawler.extract.findings import Context
from crawler.extract.guard import Judgement, judge, without_formatting_attributes
from crawler.extract.links import parse, prepare
from crawler.extract.scan import scan_utf8
from crawler.records import Extracted

LENGTH = struct.Struct(">I")


class Job(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One page to be parsed."""

    page: Context
    content: bytes


def limits_of(config: ExtractConfig) -> str:
    """The section of the configuration as the child's argument."""
    return json.dumps({name: getattr(config, name) for name in config.__struct_fields__})


def main() -> None:
    """Serve pages until the input ends; the one argument is the configuration as JSON."""
    config = ExtractConfig(**json.loads(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    resource.setrlimit(resource.RLIMIT_DATA, (config.worker_memory_bytes_max,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    try:
        serve(sys.stdin.buffer, sys.stdout.buffer, config)
    except (MemoryError, SelectolaxError):  # the parser's word for the same
        sys.exit(1)


def serve(requests: BinaryIO, answers: BinaryIO, config: ExtractConfig) -> None:
    """Answer each frame of `requests`."""
    decoder = msgspec.msgpack.Decoder(Job)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        job = decoder.decode(requests.read(*LENGTH.unpack(head)))
        signal.setitimer(signal.ITIMER_PROF, config.cpu_seconds_max)
        found = msgspec.msgpack.encode(read(job, config))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(LENGTH.pack(len(found)) + found)
        answers.flush()
        del job, found  # not while the next page is awaited


def read(job: Job, config: ExtractConfig) -> Extracted:
    """What the page holds; a plain scan if it exceeds what the parser may see."""
    utf8, encoding = prepare(job.content, job.page)
    judgement = judge(utf8, config)
    if judgement is Judgement.EXCESSIVE:
        return scan_utf8(utf8, encoding, job.page, config)
    return parse(without_formatting_attributes(utf8), encoding, job.page, config)


if __name__ == "__main__":
    main()
