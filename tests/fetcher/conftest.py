"""Nothing of the fetcher may be left to the garbage collector: what it finds unclosed fails the test."""

import gc
from collections.abc import Iterator

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/fetcher" in item.path.as_posix():
            item.add_marker(pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning"))


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect(1)
