"""Test the dashboard's page about what sites allow."""

import re

from crawler.admin.consent_page import HOSTS_SHOWN, page
from crawler.consent.statements import USES
from crawler.consent.summary import ANSWERS


def row(host: str) -> dict[str, object]:
    counts = {use: dict.fromkeys(ANSWERS, 0) for use in USES}
    return {"host": host, "pages": 1234, "without_receipt": 0, **counts}


def test_each_number_has_the_heading_of_its_column() -> None:
    """On a phone, the heads of the table are hidden, so a number without its heading has no meaning."""
    shown = page([row("a<b>.example")], []).decode()
    heads = ["pages", *(f"{use.replace('_', '-')}: {answer}" for use in USES for answer in ANSWERS)]
    assert [each.strip('"') for each in re.findall(r'<td data-head=("[^"]*"|\w+)>', shown)] == heads * 2
    assert "a&lt;b&gt;.example" in shown and "1,234" in shown


def test_a_long_list_and_an_empty_one_say_so() -> None:
    many = page([row(f"h{n}.example") for n in range(HOSTS_SHOWN + 1)], ["p1"]).decode()
    assert (
        f"The first {HOSTS_SHOWN} of {HOSTS_SHOWN + 1} hosts." in many and "Without the hosts of p1" in many
    )
    assert "no page is stored yet" in page([], []).decode()
