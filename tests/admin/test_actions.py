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
        (b'{"command": "pause", "more": 1}', {"command": "pause"}),
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
    "body",
    [b"", b"[]", b"1", b"{", b"{}", b'{"command": "export"}', b'{"command": "why"}', b'{"command": "block"}',
     b'{"command": "block", "host": 1}', b'{"command": "seed", "urls": "x"}', b'{"command": "seed", "urls": [1]}',
     b'{"command": "seed", "urls": []}', b'{"command": {}}', b"\xff", b"[" * 10_000],
)  # fmt: skip
def test_an_invalid_command_is_rejected(body: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        actions.parse(body)
    assert caught.value.status == 400
