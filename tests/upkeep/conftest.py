"""Crawls at rest for the tests of what damages, moves and mends them."""

from tests.process.conftest import open_joint
from tests.upkeep.support import directory, sound

__all__ = ["directory", "open_joint", "sound"]
