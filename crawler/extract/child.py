"""The process that parses what the fetch loop must not (`worker.py` starts it).

It answers frames on its standard input with frames on its standard output: 4
bytes of length, big-endian, and that many bytes of msgpack. A page is an array
of its context and its bytes; the answer is what was found.

The kernel ends it when a page takes more CPU than allowed (a profiling timer
whose signal nobody catches, so it works while the parser holds the
interpreter), and limits its memory. It ends by itself when its input does,
so it never outlives its parent.
"""

import resource
import signal
import struct
import sys
from typing import BinaryIO

import msgspec

from crawler.config import ExtractConfig
from crawler.extract.findings import Context
from crawler.extract.links import extract_page

LENGTH = struct.Struct(">I")


class Job(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One page to be parsed."""

    page: Context
    content: bytes


class Limits(msgspec.Struct, frozen=True, gc=False):
    """What the child needs to know of the configuration."""

    cpu_seconds_max: float
    memory_bytes_max: int
    links_max: int
    all_attributes: bool

    @classmethod
    def of(cls, config: ExtractConfig) -> "Limits":
        return cls(
            float(config.cpu_seconds_max),
            int(config.worker_memory_bytes_max),
            config.links_max,
            config.all_attributes,
        )


def main() -> None:
    """Serve pages until the input ends; the limits are the JSON of the one argument."""
    limits = msgspec.json.decode(sys.argv[1], type=Limits)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes_max, limits.memory_bytes_max))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    serve(sys.stdin.buffer, sys.stdout.buffer, limits)


def serve(requests: BinaryIO, answers: BinaryIO, limits: Limits) -> None:
    """Answer each frame of `requests`."""
    config = ExtractConfig(links_max=limits.links_max, all_attributes=limits.all_attributes)
    decoder = msgspec.msgpack.Decoder(Job)
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        job = decoder.decode(requests.read(*LENGTH.unpack(head)))
        signal.setitimer(signal.ITIMER_PROF, limits.cpu_seconds_max)
        found = msgspec.msgpack.encode(extract_page(job.content, job.page, config))
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(LENGTH.pack(len(found)) + found)
        answers.flush()


if __name__ == "__main__":
    main()
