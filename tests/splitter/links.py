"""Makes links for the tests of the splitter."""

import random
from typing import Any

from crawler.records import Link


def make_links(rng: random.Random, count: int, *, first: int = 0, last: int = 1 << 16) -> list[Link]:
    """Return `count` links whose buckets are in the range first <= bucket < last."""
    return [
        Link(
            fingerprint=rng.randrange(first, last) << 48 | rng.getrandbits(48),
            url=f"http://h{rng.randrange(50)}.example/{'p' * rng.randrange(40)}/{index}",
            depth=rng.randrange(20),
            via=rng.getrandbits(64),
            redirects=rng.randrange(3),
            flags=rng.randrange(64),
        )
        for index in range(count)
    ]


class Unread(dict[str, Any]):
    """A dictionary that allows only look-ups of single keys."""

    def __iter__(self) -> Any:
        raise AssertionError("the whole dictionary was read, but only look-ups of single keys are allowed")

    keys = values = items = __iter__
