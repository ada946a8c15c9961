"""Fails a test if the garbage collector finds something that the fetcher left unclosed."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect(1)
