"""The interpreted form of `elias_fano.py`, which explains the arguments. Numpy does the work.

Unlike the compiled form, `join` decodes every block into which a query falls.
"""

import numpy as np

from crawler.due.run_layout import FENCE_STEP


def encode(keys, posts, widths, starts, words) -> None:
    one = np.uint64(1)
    for block, width in enumerate(widths.astype(np.uint64)):
        above = keys[block * FENCE_STEP : (block + 1) * FENCE_STEP] - posts[block]
        order = np.arange(len(above), dtype=np.uint64)
        target = words[starts[block] : starts[block + 1]]
        places = (above >> width) + order
        np.bitwise_or.at(target, places >> np.uint64(6), one << (places & np.uint64(63)))
        if not width:
            continue
        low = above & (one << width) - one
        places = order * width + np.uint64(len(above)) + (posts[block + 1] - posts[block] >> width) + one
        shift = places & np.uint64(63)
        np.bitwise_or.at(target, places >> np.uint64(6), low << shift)
        split = shift + width > np.uint64(64)
        following = (places[split] >> np.uint64(6)) + one
        np.bitwise_or.at(target, following, low[split] >> (np.uint64(64) - shift[split]))


def decode(words, posts, widths, starts, blocks, count) -> np.ndarray:
    """Return the `count` keys of the blocks with the numbers `blocks`, which are ascending.

    Only the last block may hold fewer than FENCE_STEP keys.
    """
    keys = np.zeros(count, np.uint64)
    for number, block in enumerate(blocks):
        target = keys[number * FENCE_STEP : (number + 1) * FENCE_STEP]
        source = words[starts[block] : starts[block + 1]]
        width = np.uint64(widths[block])
        high_bits = len(target) + int(posts[block + 1] - posts[block] >> width) + 1
        bits = np.unpackbits(source[: -(-high_bits // 64)].view(np.uint8), bitorder="little")[:high_bits]
        ones = np.flatnonzero(bits)[: len(target)]
        order = np.arange(len(target), dtype=np.uint64)
        target[: len(ones)] = ones
        target[:] = posts[block] + (target - order << width)
        if width:
            places = order * width + np.uint64(high_bits)
            shift = places & np.uint64(63)
            low = source[places >> np.uint64(6)] >> shift
            split = shift + width > np.uint64(64)
            following = source[(places[split] >> np.uint64(6)) + np.uint64(1)]
            low[split] |= following << (np.uint64(64) - shift[split])
            target[:] += low & (np.uint64(1) << width) - np.uint64(1)
    return keys


def join(queries, words, posts, widths, starts, count, known) -> None:
    """Look up the queries by decoding every block that a query falls into."""
    which = np.flatnonzero((known == 0) & (queries >= posts[0]) & (queries <= posts[-1]))
    blocks = np.unique(np.searchsorted(posts[:-1], queries[which], side="right") - 1)
    if not len(blocks):
        return
    held = len(blocks) * FENCE_STEP
    if blocks[-1] == len(widths) - 1:
        held -= len(widths) * FENCE_STEP - count
    keys = decode(words, posts, widths, starts, blocks, held)
    at = np.minimum(np.searchsorted(keys, queries[which]), len(keys) - 1)
    known[which[keys[at] == queries[which]]] = 1
