"""Reads files that a user names, within limits: a path may name an endless device, or a file of the wrong kind.

A file is too long, or a line is, if it exceeds the limits of the functions. The error is an `OSError`, which
callers report like a file that does not exist: in one line, with the exit code of a usage error.
"""

import errno
from collections.abc import Iterator
from pathlib import Path
from typing import IO

BYTES_MAX = 64 << 20  # maximum size of a file that is read as a whole, as of those in a crawl directory
LINE_MAX = 1 << 20  # maximum length of a line in characters; a URL has at most 8,192


def read_bytes(path: Path | str, bytes_max: int = BYTES_MAX) -> bytes:
    """Return the content of a file.

    Raises:
        OSError: the file cannot be read, or is longer than `bytes_max`.
    """
    with open(path, "rb") as file:
        content = file.read(bytes_max + 1)
    if len(content) > bytes_max:
        raise OSError(errno.EINVAL, f"longer than {bytes_max >> 20} MiB", str(path))
    return content


def lines_of(file: IO[str], line_max: int = LINE_MAX) -> Iterator[str]:
    """Yield the lines of an open file as iteration over the file does.

    Raises:
        OSError: a line is longer than `line_max`.
    """
    number = 0
    while line := file.readline(line_max):
        number += 1
        if len(line) == line_max and not line.endswith("\n"):
            raise OSError(errno.EINVAL, f"line {number} is longer than {line_max:,} characters")
        yield line
