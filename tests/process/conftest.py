"""Fixtures that open the real stages of a process."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.process.support import Joint


@pytest.fixture
def open_joint(tmp_path: Path) -> Iterator[Callable[..., Joint]]:
    """Return a function that opens a `Joint`. At the end, close all that were opened, cleanly."""
    opened: list[Joint] = []

    def open_one(**options: Any) -> Joint:
        opened.append(Joint(tmp_path / str(len(opened)), **options))
        return opened[-1]

    yield open_one
    for joint in opened:
        joint.close()


@pytest.fixture
def joint(open_joint: Callable[..., Joint]) -> Joint:
    """Open a crawl of one process with the default configuration."""
    return open_joint()
