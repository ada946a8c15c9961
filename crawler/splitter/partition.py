"""The bucket table, which determines which process owns which part of the web.

A bucket is the top 16 bits of a fingerprint. The bucket is a keyed hash of the registrable domain of the URL
(`urls/README.md`, "Fingerprint"), so all URLs of a domain have the same owner. The table maps each of the
65,536 buckets to the index of a process name. Names are sorted, so processes with the same settings have the
same table.

Without a table file, every process owns one contiguous range of buckets, and all ranges have almost the same
length. A table file is JSON; a reshard reads and writes it:

    {"epoch": 2, "ranges": [["p0", 0, 40000], ["p1", 40000, 65536]]}

Two processes connect only if their tables have the same epoch and digest. With different tables, a link could
be sent back and forth, or two processes could crawl the same host.
"""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np

from crawler.config.forms import process_name
from crawler.errors import ConfigError
from crawler.input_files import read_bytes
from crawler.storage.keys import BUCKETS

PROCESSES_MAX = 4096
_BUCKET_SHIFT = np.uint64(48)


class _TableFile(msgspec.Struct, forbid_unknown_fields=True):
    """The file format of a bucket table. Each range is (name, first bucket, bucket after the last one)."""

    epoch: int
    ranges: list[tuple[str, int, int]]


class Partition:
    """Maps buckets to processes. `owner_of_bucket` has shape (65536,), and its values are indices into `names`."""

    def __init__(self, names: Sequence[str], owner_of_bucket: np.ndarray, *, epoch: int = 1) -> None:
        self.names = tuple(sorted(names))
        if not 1 <= len(self.names) <= PROCESSES_MAX or len(set(self.names)) != len(self.names):
            raise ConfigError(
                f"splitter: expected 1 to {PROCESSES_MAX} different process names, got {list(names)!r:.200}"
            )
        for name in self.names:
            process_name(name)
        self.epoch = epoch
        self.owner_of_bucket = np.ascontiguousarray(owner_of_bucket, dtype=np.uint16)
        assert self.owner_of_bucket.shape == (BUCKETS,) and int(self.owner_of_bucket.max()) < len(self.names)
        self.digest = self._digest()

    @classmethod
    def equal_ranges(cls, names: Sequence[str], *, epoch: int = 1) -> "Partition":
        """Return a table with one range of buckets per name, in order of names. Lengths differ by at most one."""
        count = max(1, len(names))
        ends = -(-np.arange(1, count + 1) * BUCKETS // count)  # rounded up
        return cls(names, np.repeat(np.arange(count, dtype=np.uint16), np.diff(ends, prepend=0)), epoch=epoch)

    @classmethod
    def from_ranges(cls, ranges: Sequence[tuple[str, int, int]], *, epoch: int) -> "Partition":
        """Return the table for ranges that are given as (name, first bucket, bucket after the last one).

        The ranges must cover every bucket exactly once.

        Raises:
            ConfigError: the ranges overlap, leave a gap or exceed the buckets.
        """
        names = sorted({name for name, _, _ in ranges})
        owners = np.zeros(BUCKETS, dtype=np.uint16)
        at = 0
        for name, first, end in sorted(ranges, key=lambda each: each[1]):
            if first != at or not first < end <= BUCKETS:
                raise ConfigError(
                    f"splitter: bucket table: range {first} to {end} of {name!r} must begin at {at}"
                )
            owners[first:end] = names.index(name)
            at = end
        if at != BUCKETS:
            raise ConfigError(f"splitter: bucket table: buckets {at} to {BUCKETS} have no owner")
        return cls(names, owners, epoch=epoch)

    @classmethod
    def decode(cls, text: bytes) -> "Partition":
        """Return the table that `encode` wrote.

        Raises:
            ConfigError: the text is not a bucket table.
        """
        try:
            table = msgspec.json.decode(text, type=_TableFile)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"splitter: bucket table: {error}") from error
        if not 0 <= table.epoch < 1 << 63:
            raise ConfigError(f"splitter: bucket table: epoch {table.epoch} is out of range")
        return cls.from_ranges(table.ranges, epoch=table.epoch)

    @classmethod
    def read(cls, path: Path) -> "Partition":
        """Read the table from a file.

        Raises:
            ConfigError: the file cannot be read, or is not a bucket table.
        """
        try:
            text = read_bytes(path)
        except OSError as error:
            raise ConfigError(f"splitter: bucket table {path}: {error.strerror}") from error
        try:
            return cls.decode(text)
        except ConfigError as error:
            raise ConfigError(f"{path}: {error}") from None

    def encode(self) -> bytes:
        """Return the table as JSON, one range per line."""
        lines = ",\n  ".join(msgspec.json.encode(each).decode() for each in self.ranges())
        return f'{{"epoch": {self.epoch}, "ranges": [\n  {lines}\n]}}\n'.encode()

    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """Yield the contiguous ranges (name, first, end) in bucket order."""
        cuts = [0, *(np.flatnonzero(np.diff(self.owner_of_bucket)) + 1).tolist(), BUCKETS]
        for first, end in zip(cuts, cuts[1:], strict=False):
            yield self.names[self.owner_of_bucket[first]], first, end

    def index(self, name: str) -> int:
        """Return the index of `name`.

        Raises:
            ConfigError: the table does not contain it.
        """
        try:
            return self.names.index(name)
        except ValueError:
            raise ConfigError(
                f"splitter: {name!r} is not among the processes {', '.join(self.names)}"
            ) from None

    def owner(self, fingerprint: int) -> str:
        """Return the name of the process that owns a fingerprint."""
        return self.names[self.owner_of_bucket[fingerprint >> 48]]

    def owners(self, fingerprints: np.ndarray) -> np.ndarray:
        """Return the owners of `fingerprints`, uint64 (n,), as indices into `names`, uint16 (n,)."""
        return self.owner_of_bucket.take((fingerprints >> _BUCKET_SHIFT).view(np.int64))

    def split(self, fingerprints: np.ndarray) -> dict[str, list[int]]:
        """Return, by owner name, the indices of the owner's fingerprints in `fingerprints`, uint64 (n,).

        100 fingerprints of one owner take 6 us.
        """
        if len(self.names) == 1:
            return {self.names[0]: list(range(len(fingerprints)))} if len(fingerprints) else {}
        owners = self.owners(fingerprints).tolist()
        # the usual case: most pages link only to their own site
        if owners and owners.count(owners[0]) == len(owners):
            return {self.names[owners[0]]: list(range(len(owners)))}
        positions: dict[int, list[int]] = {}
        for position, owner in enumerate(owners):
            found = positions.get(owner)
            if found is None:
                positions[owner] = [position]
            else:
                found.append(position)
        return {self.names[owner]: found for owner, found in positions.items()}

    def _digest(self) -> bytes:
        hashed = hashlib.sha256(self.epoch.to_bytes(8, "big"))
        hashed.update("\n".join(self.names).encode())
        hashed.update(self.owner_of_bucket.astype(">u2").tobytes())
        return hashed.digest()[:16]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Partition) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"Partition(epoch {self.epoch}, {len(self.names)} processes, digest {self.digest.hex()[:8]})"
