"""Which pages must not be parsed in the fetch loop.

Lexbor is quadratic in the attributes of one tag and in the number of open
elements, and it holds the interpreter while it runs. `is_heavy` says whether a
page could be such a case. It may be wrong in one direction only: a harmless
page that looks heavy is parsed in the worker, with the same result.
"""

import re

import numpy as np

from crawler.config import ExtractConfig

_LESS, _GREATER = ord("<"), ord(">")
_TAG = re.compile(rb"</?[A-Za-z][^\t\n\f\r />]*+")
_ATTRIBUTE_BYTES_MIN = 2  # `a a a` or `a/a/a`


def is_heavy(content: bytes, config: ExtractConfig) -> bool:
    """Whether parsing `content` might take more time than a page may hold the loop."""
    size = len(content)
    if size > config.inline_bytes_max:
        return True
    if size <= _ATTRIBUTE_BYTES_MIN * config.attributes_max:
        return False
    octets = np.frombuffer(content, np.uint8)
    if np.count_nonzero(octets == _LESS) > config.depth_max and depth(content) > config.depth_max:
        return True
    return _longest_tag(content, octets) > _ATTRIBUTE_BYTES_MIN * config.attributes_max


def depth(content: bytes) -> int:
    """An upper bound of the number of open elements: per name, start tags without an end tag so far."""
    open_tags: dict[bytes, int] = {}
    level = deepest = 0
    for tag in _TAG.findall(content.lower()):
        if tag[1] != 0x2F:
            open_tags[tag] = open_tags.get(tag, 0) + 1
            level += 1
            if level > deepest:
                deepest = level
        elif open_tags.get(name := b"<" + tag[2:], 0):
            open_tags[name] -= 1
            level -= 1
    return deepest


def _longest_tag(content: bytes, octets: np.ndarray) -> int:
    ends = np.flatnonzero(octets == _GREATER)
    bounds = np.concatenate(([-1], ends, [len(content)]))
    gaps = np.diff(bounds)
    longest = 0
    for index in np.flatnonzero(gaps > 4000):
        start = content.find(b"<", int(bounds[index]) + 1, int(bounds[index + 1]))
        if start >= 0:
            longest = max(longest, int(bounds[index + 1]) - start)
    return longest
