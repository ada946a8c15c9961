"""Ends the shared browser after the last test."""

from collections.abc import Iterator

import pytest

from tests.browser import chromium


@pytest.fixture(scope="package", autouse=True)
def _browser() -> Iterator[None]:
    yield
    chromium.end_shared()
