"""Moves the seeds that the old processes have sent to their owners, for `crawler reshard` (`sent_seeds.py`).

A seed may be stored nowhere but with its owner and with the process that sent it. So each seed is kept by the
keeper of its new owner (`keeper_of`): if the owner loses its disk, the keeper still has the seed.
If there is only one new process, it keeps the seeds for the next reshard.
"""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from crawler.process.results.sent_seeds import keeper_of, sent_seeds, stored_seeds
from crawler.splitter.partition import Partition
from crawler.storage.reshard import NewProcess

_SEEDS_AT_ONCE = 10_000  # number of seeds per key, about 1 MB


def move(to: NewProcess, name: str, table: Partition) -> None:
    """Store the seeds that the process `name` of the new table keeps, each once."""
    keepers = np.array([table.index(keeper_of(table, owner)) for owner in table.names])[table.owner_of_bucket]
    me = table.index(name)
    for number, seeds in enumerate(
        _pieces(_kept(to, lambda fingerprints: keepers[fingerprints >> 48] == me))
    ):
        for key, value in stored_seeds(number, [url for url, _ in seeds], [each for _, each in seeds]):
            to.put(key, value)


def _kept(
    to: NewProcess, keeps: Callable[[NDArray[np.uint64]], NDArray[np.bool_]]
) -> Iterator[tuple[str, int]]:
    """Yield the URL and the fingerprint of each seed that the new process keeps."""
    met: set[int] = set()
    for source in to.sources:
        for urls, fingerprints in sent_seeds(source.store):
            for place in np.flatnonzero(keeps(fingerprints)).tolist():
                if (fingerprint := int(fingerprints[place])) not in met:
                    met.add(fingerprint)
                    yield urls[place], fingerprint


def _pieces(seeds: Iterator[tuple[str, int]]) -> Iterator[list[tuple[str, int]]]:
    piece: list[tuple[str, int]] = []
    for seed in seeds:
        piece.append(seed)
        if len(piece) == _SEEDS_AT_ONCE:
            yield piece
            piece = []
    if piece:
        yield piece
