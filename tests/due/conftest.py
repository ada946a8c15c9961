"""Run each test of the DUE that takes `form` twice: with the kernels as installed, and with interpreted kernels."""

from collections.abc import Iterator

import pytest

from tests.due import forms


@pytest.fixture(params=["installed", "interpreted"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    with forms.using(request.param):
        yield request.param
