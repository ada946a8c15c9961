"""Parts: bodies of large files, which are kept on disk from their first megabyte until the capture is durable.

    <folder>/<id>.part    the payload received so far
    <folder>/<id>.head    the answer that it belongs to (`PartHead`), and the boot of the machine

    begin --write--> whole --commit--> drop
               '--disconnect, stop or kill--> left --write--> whole

A body in a part takes no memory, because the digests of the body are computed while the body arrives, and
readers get the body in pieces. A part stays on the disk when its process ends. So an interrupted transfer is
resumed at the next request, even in a later run. Parts are not synced. A kill of the process loses no written
byte. After a reboot, bytes could be missing, so the parts from before the reboot are deleted.
"""

import hashlib
import os
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

import mmh3
import msgspec

from crawler.errors import StoreError
from crawler.storage.files import store_errors, write_all

PIECE_BYTES = 1 << 20
PARTS = "parts"  # name of the folder in which a process keeps its parts
_BODY, _HEAD = ".part", ".head"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class PartHead(msgspec.Struct, gc=False):
    """The answer to which the bytes of a partly received file belong.

    `request` is the head of the request for this answer. `length` is the length that the answer stated, or -1
    if it stated none. `resumed` lists the lengths that the part had when later answers continued it.
    """

    url: str
    began: float
    status: int
    reason: str
    version: str
    fields: tuple[tuple[bytes, bytes], ...]
    request: bytes = b""
    length: int = -1
    resumed: list[int] = []
    boot: str = ""


_decode = msgspec.msgpack.Decoder(PartHead).decode
_encode = msgspec.msgpack.Encoder().encode


class Part:
    """The body of one answer, on disk. All methods raise StoreError if the disk fails."""

    def __init__(self, path: Path, head: PartHead) -> None:
        self.head = head
        self.length = 0
        self._path = path
        self._sha1 = hashlib.sha1()
        self._content = mmh3.mmh3_x64_128()
        self._is_decoded = False
        with store_errors(path, "open"):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    @property
    def payload_digest(self) -> bytes:
        return self._sha1.digest()

    @property
    def content_digest(self) -> bytes:
        """The 128-bit murmur3 hash of the payload, or of the decoded content (`pages/change_detection.py`)."""
        return self._content.digest()

    def write(self, data: bytes) -> None:
        with store_errors(self._path, "append"):
            write_all(self._descriptor, data)
        self._count(data)

    def _count(self, data: bytes) -> None:
        self.length += len(data)
        self._sha1.update(data)
        if not self._is_decoded:
            self._content.update(data)

    def hash_content(self, content: bytes) -> None:
        """Hash decoded content, in place of the written bytes. All content of the body must be passed.

        The first call must precede the first `write`.
        """
        self._is_decoded = True
        self._content.update(content)

    def reload(self) -> None:
        """Compute the length and the digests of the bytes that an earlier process has written."""
        for piece in self._read(0):
            self._count(piece)

    def note_resumed(self) -> None:
        """Record that a later answer continues the part at its present length."""
        self.head.resumed.append(self.length)
        self.save_head()

    def save_head(self) -> None:
        """Write the head of the part to a separate file."""
        with store_errors(self._path, "write"):
            self._path.with_suffix(_HEAD).write_bytes(_encode(self.head))

    def pieces(self) -> Iterator[bytes]:
        """Yield the payload in pieces of at most `PIECE_BYTES`.

        This may be called in any thread, any number of times.
        """
        read = 0
        for piece in self._read(self.length):
            read += len(piece)
            yield piece
        if read != self.length:
            raise StoreError(f"{self._path}: has lost bytes while it was in use")

    def _read(self, end: int) -> Iterator[bytes]:
        """Yield the bytes up to the offset `end`, or to the end of the file if `end` is 0."""
        at = 0
        while not end or at < end:
            with store_errors(self._path, "read"):
                piece = os.pread(self._descriptor, min(PIECE_BYTES, end - at) if end else PIECE_BYTES, at)
            if not piece:
                return
            at += len(piece)
            yield piece

    @property
    def closed(self) -> bool:
        return self._descriptor < 0

    def close(self) -> None:
        """Close the file. A second call does nothing."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def drop(self) -> None:
        """Close and delete the part."""
        self.close()
        _delete(self._path)

    def __repr__(self) -> str:
        return f"Part({self._path.name}, {self.length} of {self.head.length} bytes)"


def _read_head(path: Path) -> PartHead | None:
    """Return the head of the part at `path`; None if it cannot be read."""
    try:
        return _decode(path.with_suffix(_HEAD).read_bytes())
    except (OSError, msgspec.MsgspecError):
        return None


def _delete(path: Path) -> None:
    path.unlink(missing_ok=True)
    path.with_suffix(_HEAD).unlink(missing_ok=True)


def part_files(folder: Path) -> Iterator[Path]:
    """Yield the files that belong to parts in a folder."""
    return folder.glob(f"*{_BODY}")


class PartFolder:
    """The parts of one process. They are in `folder`, which is created with the first part."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boot = _boot()
        # the open parts, each with its length when it was opened
        self._open: weakref.WeakKeyDictionary[Part, int] = weakref.WeakKeyDictionary()
        self._left = {path.stem for path in folder.glob(f"*{_HEAD}")}

    def begin(self, identity: str, head: PartHead) -> Part:
        """Create a part. An existing part with the same identity is replaced.

        Raises:
            StoreError: the disk failed.
        """
        head.boot = self._boot
        path = self._path(identity)
        with store_errors(path, "create"):
            self._folder.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        part = Part(path, head)
        part.save_head()
        self._open[part] = 0
        return part

    @property
    def arriving_bytes(self) -> int:
        """The number of bytes written to the parts that are open. They arrive, or wait for their commit."""
        return sum(part.length - before for part, before in self._open.items() if not part.closed)

    def has(self, identity: str) -> bool:
        """Return whether an interrupted transfer has left a part."""
        return identity in self._left

    def left(self, identity: str) -> Part | None:
        """Reopen the part that an interrupted transfer has left; return None if there is none.

        This takes 2 ms per MB.
        """
        if identity not in self._left:
            return None
        self._left.discard(identity)
        path = self._path(identity)
        if (head := _read_head(path)) is None:
            return None
        part = Part(path, head)
        part.reload()
        self._open[part] = part.length
        return part

    def keep(self, identity: str, part: Part) -> None:
        """Close the part of an interrupted transfer. `left` can open it again."""
        part.close()
        self._left.add(identity)

    def sweep(self, is_needed: Callable[[str, PartHead], bool]) -> None:
        """Delete the parts of earlier processes for which `is_needed(identity, head)` is false."""
        for identity in sorted(self._left):
            path = self._path(identity)
            head = _read_head(path)
            current = head is not None and head.boot == self._boot and path.exists()
            if head is None or not current or not is_needed(identity, head):
                self._left.discard(identity)
                _delete(path)

    def _path(self, identity: str) -> Path:
        return self._folder / f"{identity}{_BODY}"


def _boot() -> str:
    """Return the id of this boot of the machine; "" if the system does not provide it."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""
