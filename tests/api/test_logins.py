"""Test logins by a form: the cookies of a crawl whose Python code makes requests."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import crawler
from tests.end_to_end.web import SETTINGS, Answer, ReceivedRequest, Web, page

FORM = '<form method=post action=/login><input name=token value="{}"><input name=user></form>'


def form(asked: ReceivedRequest) -> Answer:
    """The form and the check of its token, which the cookie of the form's page must repeat."""
    if asked.method == "GET":
        return 200, {"Set-Cookie": "token=7; Path=/"}, FORM.format(7)
    if b"token=7" in asked.body and "token=7" in asked.headers.get("Cookie", ""):
        return 303, {"Location": "/home", "Set-Cookie": "sid=1; Path=/"}, ""
    return 403, {}, "no token"


def home(asked: ReceivedRequest) -> Answer:
    welcome = "sid=1" in asked.headers.get("Cookie", "")
    return page("/orders", text="welcome" if welcome else "who?")


def orders(asked: ReceivedRequest) -> Answer:
    return page(text="three orders" if "sid=1" in asked.headers.get("Cookie", "") else "log in first")


class Customer:
    """Logs in with the form and reads a page behind it."""

    def __init__(self) -> None:
        self.read: list[str] = []

    def parse(self, found: crawler.Page) -> Iterator[crawler.Request]:
        yield found.submit({"user": "me"}, self.home)

    def home(self, found: crawler.Page) -> Iterator[crawler.Request]:
        self.read.append(found.text)
        yield crawler.Request("/orders", self.orders)

    def orders(self, found: crawler.Page) -> None:
        self.read.append(found.text)


@pytest.mark.parametrize(
    ("fetch", "logged_in"),
    [({}, True), ({"cookies": True}, True), ({"cookies": False}, False)],
)
def test_a_submitted_form_logs_in(tmp_path: Path, fetch: Mapping[str, Any], logged_in: bool) -> None:
    """By default, and with cookies; without cookies only if the user says so. The answer once was lost silently."""
    customer = Customer()
    with Web(
        {"/": (302, {"Location": "/login"}, ""), "/login": form, "/home": home, "/orders": orders}
    ) as web:
        settings = SETTINGS | {"fetch": fetch}
        crawler.run(web.url("/login"), customer.parse, directory=tmp_path, follow=False, config=settings)
    assert any("three orders" in text for text in customer.read) == logged_in


def test_a_crawl_without_requests_keeps_no_cookies(tmp_path: Path) -> None:
    """`auto` without Python code that makes requests: a cookie is not sent back."""
    routes = {"/": (200, {"Set-Cookie": "a=1; Path=/"}, page("/b")), "/b": page()}
    with Web(routes) as web:
        crawler.run(web.url(), directory=tmp_path, config=SETTINGS)
        assert [asked.headers.get("Cookie") for asked in web.asked] == [None] * 3
