"""Test that the crawler asks for a contact, or requires one, before the first request to a public host."""

import logging

import pytest

from crawler.config import convert
from crawler.crawl.identity import Contact, is_public
from crawler.errors import UsageError


@pytest.mark.parametrize(
    ("host", "public"),
    [
        ("a.org", True),
        ("8.8.8.8", True),
        ("[2001:4860:4860::8888]", True),
        ("127.0.0.1", False),
        ("10.1.2.3", False),
        ("[::1]", False),
        ("localhost", False),
        ("mylocalhost", True),
        ("x.localhost", False),
        ("x.test", False),
        ("x.internal", False),
    ],
)
def test_public_hosts_are_recognized(host: str, public: bool) -> None:
    assert is_public(host) is public


def warnings(caplog: pytest.LogCaptureFixture) -> int:
    return sum("no contact" in record.message for record in caplog.records)


def test_without_a_contact_one_warning_comes_before_the_first_public_host(
    caplog: pytest.LogCaptureFixture,
) -> None:
    contact = Contact(convert({}))
    with caplog.at_level(logging.WARNING, "crawler"):
        contact.check("localhost")
        assert warnings(caplog) == 0
        contact.check("a.org")
        contact.check("b.org")
    assert warnings(caplog) == 1


def test_a_crawl_of_everything_needs_a_contact(caplog: pytest.LogCaptureFixture) -> None:
    contact = Contact(convert({"crawl": {"scope": "any"}}))
    contact.check("127.0.0.1")
    for _ in range(2):
        with pytest.raises(UsageError, match="identity.contact="):
            contact.check("a.org")
    Contact(convert({"crawl": {"scope": "any"}, "identity": {"contact": "x@example.org"}})).check("a.org")
    assert warnings(caplog) == 0
