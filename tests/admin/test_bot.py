"""Test that the page about the bot shows the configured values."""

from typing import Any

import pytest

from crawler.admin.bot import page
from crawler.config import convert


@pytest.mark.parametrize(
    ("tree", "says"),
    [
        ({}, "nobody: no contact is configured"),
        ({"identity": {"contact": "x@example.org"}}, '<a href="mailto:x@example.org">x@example.org</a>'),
        ({"identity": {"contact": "https://a.org/bot?a&b"}}, '<a href="https://a.org/bot?a&amp;b">'),
        ({"identity": {"token": "my-bot"}}, "<code>my-bot/</code>"),
        ({"identity": {"token": "my-bot"}}, "User-agent: my-bot\nDisallow: /"),
        ({}, "obeyed, as RFC 9309 specifies"),
        ({"robots": {"policy": "ignore"}}, "not obeyed (the operator is testing"),
        ({"robots": {"copy_max_age": "12 h"}}, "at most 12 hours"),
        ({"robots": {"copy_max_age": "12 h"}}, "within 12 hours"),
        ({"politeness": {"delay": 3, "delay_factor": 7}}, "3 s, or 7 times as long as your last answer took"),
        ({"politeness": {"delay": 3, "delay_factor": 0}}, "<td>3 s</td>"),
        ({"politeness": {"delay_max": 20}}, "not more than 20 s"),
        ({"politeness": {"backoff_first": 60, "backoff_max": "6 h"}}, "a pause of 60 s that doubles up to 6 hours"),
        ({"politeness": {"crawl_delay_max": "2 h"}}, "obeyed, up to 2 hours"),
    ],
)  # fmt: skip
def test_the_page_shows_the_configuration(tree: dict[str, Any], says: str) -> None:
    assert says in page(convert(tree)).decode()
