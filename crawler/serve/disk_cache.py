"""Keeps inflated bodies in a file, so that a page that is too much for memory is inflated only once.

    file, a ring:   | newest | free ... | oldest | ... | newest but one |
    index:          16 bytes of a hash of the copy's place and digest -> offset, length, checksum

A new body takes the place of the oldest bodies. The file has no name, so the kernel frees its disk space when the
server ends, even by SIGKILL. A server therefore starts with an empty cache, and nothing is synchronized to the
disk. The page handler reads the body of a copy from this cache only after it has decided that the copy may be
shown. An erased copy must leave the disk as well, so each change of the withdrawals empties the file
(`CopyReader.open`).
"""

import errno
import hashlib
import logging
import os
import tempfile
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path

from isal.isal_zlib import crc32

from crawler.config import ServeConfig
from crawler.errors import ConfigError
from crawler.serve.asked_before import AskedBefore

log = logging.getLogger("crawler")

BODY_BYTES_MIN = 2048  # a shorter body is not stored, because reading it takes as long as inflating it
# The index has at most one entry per this number of bytes of the file. An entry takes 190 bytes.
BYTES_AN_ENTRY = 16_384
# the file takes at most an eighth of the disk space that is free when the server starts
FREE_SHARE = 8
CLEARED_AT_ONCE = 8 << 20  # number of bytes that are freed at a time, which takes about 5 ms


class DiskCache:
    """A cache of bodies in one file in `folder`. The file has at most `bytes_max` bytes.

    Once the disk is full, nothing is stored any more. `hits` counts the bodies that were read.

    Raises:
        OSError: no file can be created in the folder.
    """

    def __init__(self, folder: Path, bytes_max: int) -> None:
        self._file = _nameless_file(folder)
        system = os.fstatvfs(self._file)
        self.bytes_max = min(bytes_max, system.f_bavail * system.f_frsize // FREE_SHARE)
        self.bytes = 0
        self.hits = 0
        self._end = 0  # where the next body is written
        # offset, length and checksum of each body; the oldest body is first
        self._places: OrderedDict[bytes, int] = OrderedDict()
        self._asked = AskedBefore()

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, key: bytes) -> bool:
        return key in self._places

    def read(self, key: bytes) -> bytes | None:
        """Return the body under `key`; None if no body is stored, or if its bytes have changed on the disk."""
        packed = self._places.get(key)
        if packed is None:
            return None
        offset, length, checksum = _unpacked(packed)
        try:
            body = os.pread(self._file, length, offset)
        except OSError:
            body = b""
        if len(body) != length or crc32(body) != checksum:
            self._drop(key)
            return None
        self.hits += 1
        return body

    def wants(self, key: bytes, length: int) -> bool:
        """Return whether a body of this length is to be stored. Remember this request."""
        if key in self._places or not BODY_BYTES_MIN <= length <= self.bytes_max // 8:
            return False
        return self.has_room(length) or self._asked.before(key)

    def has_room(self, length: int) -> bool:
        """Return whether a body of this length can be stored without dropping another body."""
        places = self._places
        if not places:
            return length <= self.bytes_max
        oldest = _offset(next(iter(places.values())))
        end = oldest if oldest >= self._end else self.bytes_max
        return self._end + length <= end and len(places) < self.bytes_max // BYTES_AN_ENTRY

    def write(self, key: bytes, body: bytes) -> None:
        """Store a body that `wants` has admitted."""
        if key in self._places:
            self._drop(key)
        offset = self._claim(len(body))
        try:
            written = os.pwrite(self._file, body, offset)
        except OSError as error:
            log.warning("serve: inflated pages are no longer kept on disk: %s", error.strerror)
            return self.close()
        if written == len(body):
            self._places[key] = _packed(offset, len(body), crc32(body))
            self.bytes += len(body)
            self._end = offset + len(body)

    def _claim(self, length: int) -> int:
        """Return the offset for a body of this length, after dropping the bodies that lie there."""
        places, offset = self._places, self._end
        if len(places) >= max(1, self.bytes_max // BYTES_AN_ENTRY):
            self._drop(next(iter(places)))
        if offset + length > self.bytes_max:
            while places and _offset(next(iter(places.values()))) >= self._end:
                self._drop(next(iter(places)))
            offset = 0
        while places and offset <= _offset(next(iter(places.values()))) < offset + length:
            self._drop(next(iter(places)))
        return offset

    def _drop(self, key: bytes) -> None:
        self.bytes -= _unpacked(self._places.pop(key))[1]

    def clear(self) -> None:
        """Empty the file; its bytes are no longer on the disk when this method returns."""
        for _ in self.clearing():
            pass

    def clearing(self) -> Iterator[None]:
        """Empty the file as `clear` does, with a pause after each portion. New bodies may be stored during the pauses."""
        self._places.clear()
        self.bytes = self._end = 0
        while self._file >= 0 and (size := os.fstat(self._file).st_size) > self._end:
            os.ftruncate(self._file, max(size - CLEARED_AT_ONCE, self._end))
            yield

    def close(self) -> None:
        """Close the file, so that the kernel frees its space. From now on, nothing is stored."""
        self._places.clear()
        self.bytes = self._end = self.bytes_max = 0
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _check(self) -> None:
        """Assert every invariant: the bodies follow each other in the ring and do not overlap."""
        places = [_unpacked(packed) for packed in self._places.values()]
        assert self.bytes == sum(length for _, length, _ in places) <= self.bytes_max
        taken = sorted((offset, offset + length) for offset, length, _ in places)
        assert all(end <= start for (_, end), (start, _) in zip(taken, taken[1:], strict=False))
        assert not taken or taken[-1][1] <= self.bytes_max


class KeptBody:
    """The place of one body in a `DiskCache`."""

    __slots__ = ("_cache", "_key")

    def __init__(self, cache: DiskCache, place: str) -> None:
        self._cache = cache
        self._key = hashlib.blake2b(place.encode(), digest_size=16).digest()

    @property
    def is_stored(self) -> bool:
        """True if the body is stored; its bytes may have changed on the disk."""
        return self._key in self._cache

    def read(self) -> bytes | None:
        """Return the body if it is stored and unchanged."""
        return self._cache.read(self._key)

    def wanted(self, length: int) -> bool:
        """Return whether a body of this length is to be stored."""
        return self._cache.wants(self._key, length)

    @property
    def has_room(self) -> bool:
        """True if a short body could be stored without dropping another body."""
        return self._cache.has_room(BODY_BYTES_MIN)

    def write(self, body: bytes) -> None:
        """Store the body."""
        self._cache.write(self._key, body)


def open_disk_cache(config: ServeConfig, folder: Path | None) -> DiskCache | None:
    """Return the cache that the configuration describes, by default in `folder`; None if there is none.

    Raises:
        ConfigError: the folder that the configuration names cannot be used.
    """
    place = Path(config.disk_cache_folder) if config.disk_cache_folder else folder
    if place is None or not config.disk_cache_bytes:
        return None
    try:
        return DiskCache(place, config.disk_cache_bytes)
    except OSError as error:
        if config.disk_cache_folder:
            raise ConfigError(f"serve.disk_cache_folder: {place}: {error.strerror}") from error
        log.info("serve: inflated pages are not kept on disk: %s: %s", place, error.strerror)
        return None


def _nameless_file(folder: Path) -> int:
    """Create a file without a name and return its descriptor."""
    try:
        return os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL):
            raise
    # the file system does not support unnamed files
    file, name = tempfile.mkstemp(dir=folder, prefix=".serve-")
    os.unlink(name)
    return file


def _packed(offset: int, length: int, checksum: int) -> int:
    return offset << 64 | length << 32 | checksum


def _unpacked(packed: int) -> tuple[int, int, int]:
    return packed >> 64, packed >> 32 & 0xFFFFFFFF, packed & 0xFFFFFFFF


def _offset(packed: int) -> int:
    return packed >> 64
