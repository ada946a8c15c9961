"""Short paths of Unix sockets, because the address of a Unix socket may have at most 107 bytes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def short_path(folder: Path, name: str) -> Iterator[str]:
    """Yield a path of the socket `name` in `folder` that is short enough to bind and to connect to."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)
