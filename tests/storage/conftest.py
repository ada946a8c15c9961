"""Fixtures of the tests of stores."""

import pytest

from tests.engines import ENGINES


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)
