"""A small crawl at rest for the tests of what damages and mends it."""

from tests.upkeep.support import directory, sound

__all__ = ["directory", "sound"]
