"""Fixtures of the tests of the page cache."""

from pathlib import Path

import pytest

from tests.pages.support import Site


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)
