"""Crawls at rest for the tests of damage, resharding and repair."""

from tests.process.conftest import open_joint
from tests.upkeep.support import directory, sound

__all__ = ["directory", "open_joint", "sound"]
