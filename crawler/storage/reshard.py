"""Moving the keys of a stage into other processes, for `crawler reshard`.

`copy_rest` copies every family whose keys begin with a bucket. The `reshard.py` of a stage
moves the keys that follow no bucket, and those it must look at, through a `NewProcess`.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from crawler.storage.keys import BY_BUCKET, bucket, bucket_range
from crawler.storage.kv import KeyValue, seal, unseal

T = TypeVar("T")


class OldProcess(msgspec.Struct, frozen=True):
    """An old process, closed and settled, to be read."""

    name: str
    folder: Path
    store: KeyValue


class NewProcess(msgspec.Struct, frozen=True):
    """One new process in the making.

    `pieces` are its buckets by old owner: (source, first, end), ascending.
    `owns` says whether a bucket is its own, `put` writes a key. The heir, one
    of all new processes, takes over what is nobody's bucket. `copied` counts
    the keys of each family that were copied by bucket, `done` are those families.
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
        """Whether a key with a bucket behind its prefix belongs here."""
        return self.owns(bucket(key))

    def copy(self, prefix: bytes) -> Iterator[tuple[OldProcess, bytes, bytes]]:
        """Copy a family by bucket; yield (source, key, value) of each."""
        self.done.add(prefix)
        for source, first, end in self.pieces:
            for key, value in source.store.scan(*bucket_range(prefix, first, end)):
                self.put(key, value)
                self.copied[prefix] += 1
                yield source, key, value

    def copy_rest(self) -> None:
        """Copy by bucket what no stage had anything to say of."""
        for prefix in BY_BUCKET:
            if prefix not in self.done:
                for _ in self.copy(prefix):
                    pass


def load(store: KeyValue, key: bytes, kind: type[T], default: T) -> T:
    """The sealed msgpack value of a key, `default` if there is none."""
    value = store.get(key)
    return default if value is None else msgspec.msgpack.decode(unseal(key, value), type=kind)


def pack(value: object) -> bytes:
    """What `load` reads."""
    return seal(msgspec.msgpack.encode(value))


def load_json(store: KeyValue, key: bytes) -> Any:
    """The sealed JSON value of a key; None if there is none."""
    value = store.get(key)
    return None if value is None else msgspec.json.decode(unseal(key, value))
