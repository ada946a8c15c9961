"""Test the addresses that listeners print."""

import pytest

from crawler.config.forms import http_origin


@pytest.mark.parametrize(
    ("host", "origin"),
    [("127.0.0.1", "http://127.0.0.1:8080"), ("::1", "http://[::1]:8080"), ("::", "http://[::]:8080"),
     ("localhost", "http://localhost:8080")],
)  # fmt: skip
def test_an_ipv6_address_is_in_brackets(host: str, origin: str) -> None:
    assert http_origin(host, 8080) == origin
