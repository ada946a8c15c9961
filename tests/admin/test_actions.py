"""Test HTTP requests that change a crawl: their authorization and their parsing."""

from pathlib import Path

import pytest

from crawler.admin import actions
from crawler.errors import DirectoryError
from crawler.serve.http_error import HttpError

TOKEN = "0123456789abcdef" * 2
HOST = "127.0.0.1:8081"
GOOD = {"X-Admin-Token": TOKEN, "Content-Type": "application/json"}


def test_the_token_is_stored_in_the_directory_and_private(tmp_path: Path) -> None:
    made = actions.token(tmp_path)
    assert (tmp_path / "admin-token").stat().st_mode & 0o777 == 0o600
    assert actions.token(tmp_path) == made and len(made) == 32
    (tmp_path / "admin-token").write_text("short")
    with pytest.raises(DirectoryError, match="admin-token"):
        actions.token(tmp_path)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"Origin": f"http://{HOST}"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Content-Type": "application/json; charset=utf-8"},
        {"X-Admin-Token": "", "Authorization": f"bearer {TOKEN}"},
    ],
)
def test_an_authorized_change_is_accepted(more: dict[str, str]) -> None:
    actions.check(GOOD | more, TOKEN, HOST)


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"Content-Type": "application/json"}, 401),
        ({"Content-Type": "application/json", "Authorization": f"Basic {TOKEN}"}, 401),
        ({"Content-Type": "application/json", "Authorization": f"Bearer {TOKEN[1:]}"}, 403),
        (GOOD | {"X-Admin-Token": "wrong"}, 403),
        (GOOD | {"X-Admin-Token": TOKEN[:-1]}, 403),
        (GOOD | {"X-Admin-Token": "\udcff"}, 403),
        (GOOD | {"Origin": "http://evil.example"}, 403),
        (GOOD | {"Origin": "null"}, 403),
        (GOOD | {"Origin": "http://127.0.0.1:9999"}, 403),
        (GOOD | {"Sec-Fetch-Site": "cross-site"}, 403),
        (GOOD | {"Sec-Fetch-Site": "same-site"}, 403),
        (GOOD | {"Content-Type": "text/plain"}, 415),
        (GOOD | {"Content-Type": "application/x-www-form-urlencoded"}, 415),
        ({"X-Admin-Token": TOKEN}, 415),
    ],
)
def test_an_unauthorized_change_is_rejected(fields: dict[str, str], status: int) -> None:
    with pytest.raises(HttpError) as caught:
        actions.check(fields, TOKEN, HOST)
    assert caught.value.status == status
    assert ("WWW-Authenticate" in dict(caught.value.fields)) == (status == 401)  # RFC 9110 11.6.1


@pytest.mark.parametrize(
    ("body", "command"),
    [
        (b'{"command": "pause"}', {"command": "pause"}),
        (b'{"command": "seed", "urls": ["x"], "render": null}', {"command": "seed", "urls": ["x"]}),
        (b'{"command": "block", "host": "a.example"}', {"command": "block", "host": "a.example"}),
        (
            b'{"command": "seed", "urls": ["http://a.example/"]}',
            {"command": "seed", "urls": ["http://a.example/"]},
        ),
        (b'{"command": "set", "settings": {"a.b": "1"}}', {"command": "set", "settings": {"a.b": "1"}}),
    ],
)
def test_valid_commands_are_parsed(body: bytes, command: dict) -> None:
    assert actions.parse(body) == command


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "the body is not a JSON object"),
        (b"[]", "the body is not a JSON object"),
        (b"{", "the body is not a JSON object"),
        (b"\xff", "the body is not a JSON object"),
        (b"[" * 10_000, "the body is not a JSON object"),
        (b"{}", "command: nothing is not one of pause, resume"),
        (b'{"command": "export"}', "command: 'export' is not one of pause, resume"),
        (b'{"command": {}}', "command: a section is not one of pause, resume"),
        (b'{"command": "block"}', "block: host is missing"),
        (b'{"command": "block", "host": 1}', "block: host: expected text, got a whole number"),
        (b'{"command": "block", "host": ""}', "block: host is empty"),
        (b'{"command": "block", "host": "a", "hots": "b"}', "block: there is no field 'hots'"),
        (b'{"command": "pause", "more": 1}', "pause: there is no field 'more'"),
        (b'{"command": "seed", "urls": "x"}', "seed: urls: expected a list, got text"),
        (b'{"command": "seed", "urls": [1]}', "seed: urls[0]: expected text, got a whole number"),
        (b'{"command": "seed", "urls": []}', "seed: urls is empty"),
        (b'{"command": "seed", "urls": ["x"], "setings": {}}', "seed: there is no field 'setings'"),
        (b'{"command": "seed", "urls": [%b"x"]}' % (b'"x",' * 10_000), "seed: at most 10,000 urls at once"),
    ],
)
def test_an_invalid_command_is_rejected(body: bytes, why: str) -> None:
    """Unknown fields were once ignored, so a misspelled `settings` had no effect."""
    with pytest.raises(HttpError) as caught:
        actions.parse(body)
    assert caught.value.status == 400
    assert str(caught.value).startswith(f"400 bad_request: {why}")
