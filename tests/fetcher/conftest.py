"""Fail a test if the garbage collector finds an object that the fetcher did not close."""

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect(1)
