"""Nothing of the fetcher may be left to the garbage collector: what it finds unclosed fails the test."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect(1)
