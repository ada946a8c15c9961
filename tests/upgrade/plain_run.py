"""Write runs of the DUE in the earlier, plain format."""

import zlib
from pathlib import Path

import numpy as np

from crawler.due.runs import RunEntry


def plain_run(directory: Path, keys: np.ndarray, number: int = 7) -> RunEntry:
    """Write a run of plain little-endian uint64 numbers. Return its entry in the list of runs."""
    data = keys.astype("<u8").tobytes()
    entry = RunEntry(number, len(keys), int(keys[0]), int(keys[-1]), zlib.crc32(data))
    (directory / entry.name).write_bytes(data)
    return entry
