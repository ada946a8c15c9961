"""Moves the keys of a stage to other processes, for `crawler reshard`.

`copy_rest` copies every family whose keys begin with a bucket. The `reshard.py` of a stage uses a
`NewProcess` to move keys that do not begin with a bucket, and keys whose values must be inspected.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from crawler.errors import DamageError
from crawler.storage.keys import BY_BUCKET, FAMILIES, bucket, bucket_range
from crawler.storage.kv import KeyValue, seal, unseal

T = TypeVar("T")


class OldProcess(msgspec.Struct, frozen=True):
    """An old process from which keys are read. The process is closed, and no link is in transit to it."""

    name: str
    folder: Path
    store: KeyValue


class NewProcess(msgspec.Struct, frozen=True):
    """One new process that is being created.

    `pieces` are the ranges of buckets that this process owns, in ascending order. Each is (source, first,
    end), where `source` is the old process that owned the range. `owns` tells whether the process owns a
    bucket, and `put` writes a key. One new process is the `heir`: it takes over the keys that belong to no
    bucket. If several old processes have a key of a family with `of_files`, the key of the bucket's owner is copied,
    or else any of them. `copied` counts the keys of each family that were copied by bucket. `done` is the set of these
    families.
    """

    folder: Path
    sources: Sequence[OldProcess]
    pieces: Sequence[tuple[OldProcess, int, int]]
    owns: Callable[[int], bool]
    put: Callable[[bytes, bytes], None]
    heir: bool
    copied: Counter[bytes] = msgspec.field(default_factory=Counter)
    done: set[bytes] = msgspec.field(default_factory=set)

    def owns_key(self, key: bytes) -> bool:
        """Return whether this process owns a key whose prefix is followed by a bucket."""
        return self.owns(bucket(key))

    def copy(self, prefix: bytes) -> Iterator[tuple[OldProcess, bytes, bytes]]:
        """Copy the keys of a family that belong to this process; yield the source, key and value of each."""
        self.done.add(prefix)
        for owner, first, end in self.pieces:
            earlier: list[OldProcess] = []
            for source in self._holders(prefix, owner):
                for key, value in source.store.scan(*bucket_range(prefix, first, end)):
                    if any(other.store.get(key) is not None for other in earlier):
                        continue
                    self.put(key, value)
                    self.copied[prefix] += 1
                    yield source, key, value
                earlier.append(source)

    def _holders(self, prefix: bytes, owner: OldProcess) -> Iterator[OldProcess]:
        """Yield the old processes that may have keys of a range of buckets; its owner is the first."""
        yield owner
        if FAMILIES[prefix].of_files:
            yield from (source for source in self.sources if source.name != owner.name)

    def copy_rest(self) -> None:
        """Copy all keys that no stage has moved. The bucket of a key decides which process gets it."""
        for prefix in BY_BUCKET:
            if prefix not in self.done:
                for _ in self.copy(prefix):
                    pass


def load(store: KeyValue, key: bytes, kind: type[T], default: T) -> T:
    """Return the sealed msgpack value of a key; `default` if there is none.

    Raises:
        DamageError: the value cannot be decoded.
    """
    value = store.get(key)
    if value is None:
        return default
    try:
        return msgspec.msgpack.decode(unseal(key, value), type=kind)
    except msgspec.MsgspecError as error:
        raise DamageError(f"store: the value of key {key!r} cannot be read: {error}") from error


def pack(value: object) -> bytes:
    """Encode a value so that `load` can read it."""
    return seal(msgspec.msgpack.encode(value))


def load_json(store: KeyValue, key: bytes) -> Any:
    """Return the sealed JSON value of a key; None if there is none."""
    value = store.get(key)
    return None if value is None else msgspec.json.decode(unseal(key, value))
