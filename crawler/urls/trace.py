"""URL traces, which a crawl with `--trace` writes and `crawler lab` reads.

Every link that enters the host splitter is logged, as in Broder, Najork, Wiener (2003), section 4.2. Links
are logged in order, and *before* the repeated links of a page are dropped. One bit of each link states
whether the link goes to another process. So the same file holds two traces: the *full trace*, and the *cross
sub-trace* of the links to other processes. A trace is a folder:

    links       uint64 per link: 63 bits of the trace's own fingerprint, bit 0 = cross
    pages       16 bytes per page: host uint64, links uint32, thread uint32, in the order of `links`
    info.json   its origin: the tags read, the threads, seed and command of a synthetic trace

The files are little-endian and have no headers, so `numpy.memmap` can open them. A page is valid once its
record and all its links are written. The last page is ignored if a crash cut it off.

The fingerprints of a crawl are secret, because a few of them, together with their URLs, reveal the seed
(`urls/README.md`, "Fingerprint"). So a trace contains keyed blake2b hashes of the crawl's fingerprints, and
the random key exists only in memory. Therefore, two traces use different names for the same URL, even if they
are of the same crawl. Each run of a crawl writes a new trace, because the caches of each run start empty too.

Writing a link takes about 1 us if its name must be computed, and 0.2 us if the name is cached. Links are
buffered. Whenever the buffer of links reaches `buffer_bytes`, it is written to the kernel's page cache in one
call.
"""

import json
import os
from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crawler.errors import StoreError
from crawler.storage.files import AppendFile, atomic_write, closed_on_error

FORMAT = "crawler url trace 1"
LINKS_FILE, PAGES_FILE, INFO_FILE = "links", "pages", "info.json"
LINK = np.dtype("<u8")
PAGE = np.dtype([("host", "<u8"), ("links", "<u4"), ("thread", "<u4")])
_CROSS = np.uint64(1)
_NAMES_MAX = 1 << 16  # number of cached names; they take some 10 MB


class TraceWriter:
    """Writes one trace. Use it from one thread at a time.

    Args:
        folder: the folder to create, which must not exist.
        info: the content of info.json, such as {"source": "crawl", "tags": [...]}.
        bytes_max: size limit of the whole trace; further pages are counted in `skipped` but not written.
        buffer_bytes: the size in bytes up to which links are buffered before a write.

    Raises:
        StoreError: the disk failed, or the folder exists.
    """

    def __init__(
        self, folder: Path, info: Mapping[str, Any], *, bytes_max: int = 64 << 30, buffer_bytes: int = 1 << 19
    ) -> None:
        self.folder = folder
        self.links = self.pages = self.skipped = 0
        self._key = os.urandom(32)
        self._names: dict[bytes, bytes] = {}
        self._bytes_left = bytes_max
        self._buffer_bytes = buffer_bytes
        self._links_buffer = bytearray()
        self._pages_buffer = bytearray()
        try:
            folder.mkdir(parents=True)
            text = json.dumps({"format": FORMAT, **info}, indent=2)
        except OSError as error:
            raise StoreError(f"{folder}: cannot make a trace: {error.strerror or error}") from error
        atomic_write(folder / INFO_FILE, text.encode() + b"\n")
        self._links_file = AppendFile(folder / LINKS_FILE)
        with closed_on_error(self._links_file.close):
            self._pages_file = AppendFile(folder / PAGES_FILE)

    @classmethod
    def next_in(cls, parent: Path, info: Mapping[str, Any], **bounds: int) -> "TraceWriter":
        """Return a writer for the next run of a crawl, in the next of the folders `parent`/0001, `parent`/0002, ..."""
        numbers = [int(folder.name) for folder in parent.glob("[0-9][0-9][0-9][0-9]")]
        return cls(parent / f"{max(numbers, default=0) + 1:04}", info, **bounds)

    def write_page(self, host: int, fingerprints: NDArray[np.uint64], cross: ArrayLike) -> None:
        """Log the links of one page, including repeats, in the order in which the page has them.

        Args:
            host: 64-bit key of the page's host; the key is renamed in the same way as fingerprints.
            fingerprints: the crawl's fingerprints, shape (n,).
            cross: whether the link belongs to another process: a boolean per link, or one for all links.

        Raises:
            StoreError: the disk failed.
        """
        size = fingerprints.nbytes + PAGE.itemsize
        if size > self._bytes_left:
            self.skipped += 1
            return
        self._bytes_left -= size
        words = marked(self._renamed(fingerprints.tobytes()), cross)
        host_name = self._renamed(int(host).to_bytes(8, "little"))[0]
        self._links_buffer += words.tobytes()
        self._pages_buffer += np.array([(host_name, len(words), 0)], PAGE).tobytes()
        self.links += len(words)
        self.pages += 1
        if len(self._links_buffer) + len(self._pages_buffer) >= self._buffer_bytes:
            self.flush()

    def flush(self) -> None:
        """Write everything to the kernel, links before the pages that refer to them."""
        self._links_file.append(bytes(self._links_buffer))
        self._pages_file.append(bytes(self._pages_buffer))
        self._links_buffer.clear()
        self._pages_buffer.clear()

    def close(self) -> None:
        """Write and sync all buffered data. The random key disappears with the object."""
        self.flush()
        for file in (self._links_file, self._pages_file):
            file.sync()
        self.abandon()

    def abandon(self) -> None:
        """Close the files without writing anything. A second call does nothing."""
        self._links_file.close()
        self._pages_file.close()

    def _renamed(self, words: bytes) -> NDArray[np.uint64]:
        """Return the names that fingerprints have in this trace. `words` holds 8 bytes per fingerprint."""
        known = self._names.get
        parts = [words[i : i + 8] for i in range(0, len(words), 8)]
        return np.frombuffer(b"".join([known(word) or self._name(word) for word in parts]), LINK)

    def _name(self, word: bytes) -> bytes:
        """Compute and cache the name of a fingerprint. Four of five links were seen a short time before."""
        if len(self._names) >= _NAMES_MAX:
            self._names.clear()
        name = self._names[word] = blake2b(word, digest_size=8, key=self._key).digest()
        return name

    def __repr__(self) -> str:
        return f"TraceWriter({self.folder}, {self.pages} pages, {self.links} links, {self.skipped} skipped)"


def marked(names: NDArray[np.uint64], cross: ArrayLike) -> NDArray[np.uint64]:
    """Return the links of a trace as 64-bit words. Bit 0 of a word tells whether the link goes to another process."""
    return names & ~_CROSS | np.asarray(cross, bool).astype(np.uint64)


def is_cross(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return for each link of a trace whether it goes to another process."""
    return (words & _CROSS).astype(bool)
