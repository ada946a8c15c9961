"""Runs each DUE test that uses the fixture `form` twice: with the installed and with the interpreted kernels."""

from collections.abc import Iterator

import pytest

from tests.due import forms


@pytest.fixture(params=["installed", "interpreted"])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    with forms.using(request.param):
        yield request.param
