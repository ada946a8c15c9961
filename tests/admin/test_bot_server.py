"""Test the public listener over real sockets: it serves only the page about the bot and the key directory."""

import asyncio
import hashlib
from base64 import b64encode
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from http_message_signatures import HTTPMessageVerifier, algorithms

from crawler.admin.bot_server import RENEWAL, BotServer
from crawler.config import Config, convert
from crawler.errors import ConfigError
from crawler.signing.key_file import write_keys
from crawler.signing.signing_keys import SigningKey, rotated
from tests.end_to_end.test_signed_requests import Published
from tests.serve.support import Response

NOW = 1_800_000_000.0
PATH = "/.well-known/http-message-signatures-directory"
KEY = SigningKey(bytes(32))


def config(**identity: str) -> Config:
    return convert({"identity": {"contact": "https://example.org/bot"} | identity})


SIGNED = {"signature": "dictionary", "signature_agent": "https://Bot.example:8443/".lower()}


class Door:
    """A public listener that reads a simulated clock, and a client that sends requests to the listener."""

    def __init__(self, settings: Config, directory: Path) -> None:
        self.now = NOW
        self.server = BotServer(settings, directory, lambda: self.now)

    async def __aenter__(self) -> "Door":
        await self.server.start("127.0.0.1:0")
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.close()

    async def ask(self, path: str, *fields: str, method: str = "GET", host: str = "any.example") -> Response:
        reader, writer = await asyncio.open_connection(*self.server.listener.address)
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", *fields]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        answer = await asyncio.wait_for(reader.read(), 10)
        writer.close()
        await writer.wait_closed()
        return Response(answer)


async def test_only_the_page_is_served_and_it_links_to_no_admin_page(tmp_path: Path) -> None:
    """The page has no link to the admin server. Requests for the state, metrics or changes are rejected."""
    async with Door(config(), tmp_path) as door:
        for path in ("/", "/bot", "/bot?x=1"):
            shown = await door.ask(path)
            assert shown.status == 200 and b"About the crawler" in shown.body
            assert (
                b"/static" not in shown.body and b"ledger" not in shown.body and b"<script" not in shown.body
            )
        for path in ("/status", "/metrics", "/why?url=http://a/", "/bot/ledger?host=a", "/events", "/do", "/static/x",
                     "/hosts", "/log", "/fetches", "/healthz", PATH, "/../bot", "//bot"):  # fmt: skip
            assert (await door.ask(path)).status == 404, path
        for method in ("POST", "PUT", "DELETE"):
            assert (await door.ask("/do", "Content-Length: 0", method=method)).status == 404
            refusal = await door.ask("/bot", "Content-Length: 0", method=method)
            assert (refusal.status, refusal.fields["allow"]) == (405, "GET, HEAD")
        assert (await door.ask("/bot", method="BREW")).status == 501
        head = await door.ask("/bot", method="HEAD")
        assert head.status == 200 and head.body == b""


async def test_the_key_directory_is_signed_for_its_own_origin(tmp_path: Path) -> None:
    """A verifier from another project accepts the signature of the directory.

    Requests with a foreign host name get no signature.
    """
    write_keys(tmp_path / "signing.key", (KEY,))

    async with Door(config(**SIGNED), tmp_path) as door:
        for host in ("bot.example:8443", "impostor.example"):
            shown = await door.ask(
                PATH, "Accept: application/http-message-signatures-directory+json", host=host
            )
            assert shown.status == 200
            assert shown.fields["content-type"] == "application/http-message-signatures-directory+json"
            assert shown.fields["cache-control"] == "max-age=86400"
            digest = b64encode(hashlib.sha256(shown.body).digest()).decode()
            assert shown.fields["content-digest"] == f"sha-256=:{digest}:"
            rows = msgspec.json.decode(shown.body)["keys"]
            assert rows == [KEY.public()]
            assert _accepted(shown, "bot.example:8443")
            assert not _accepted(shown, "impostor.example")
        again = await door.ask(PATH, f"If-None-Match: {shown.fields['etag']}")
        assert again.status == 304 and again.body == b""
        page = await door.ask("/bot")
        assert b"Web Bot Auth" in page.body and b"https://bot.example:8443" in page.body


def _accepted(shown: Response, authority: str) -> bool:
    class Request:
        method, url, headers = "GET", f"https://{authority}{PATH}", {"Host": authority}

    class Answer:
        status_code, headers, request = 200, dict(shown.fields), Request()

    verifier: Any = HTTPMessageVerifier(
        signature_algorithm=algorithms.ED25519, key_resolver=Published(shown.body.decode())
    )

    verifier.max_clock_skew = timedelta(days=36_500)  # the listener's clock shows another time
    try:
        verifier.verify(
            Answer(),
            max_age=None,
            expect_tag="http-message-signatures-directory",
            require_components=('"@authority";req', '"content-digest"'),
            body=shown.body,
        )
    except Exception as error:
        assert "created" not in str(error).lower() and "expire" not in str(error).lower(), error
        return False
    return True


async def test_key_rotations_and_the_hourly_renewal_are_published(tmp_path: Path) -> None:
    write_keys(tmp_path / "signing.key", (KEY,))

    async with Door(config(**SIGNED), tmp_path) as door:
        first = await door.ask(PATH)
        assert (await door.ask(PATH)).fields["signature"] == first.fields["signature"]
        door.now += RENEWAL
        renewed = await door.ask(PATH)
        assert renewed.body == first.body and renewed.fields["signature"] != first.fields["signature"]
        write_keys(tmp_path / "signing.key", rotated((KEY,), bytes([1]) * 32, door.now, at_once=False))
        both = await door.ask(PATH)
        assert len(msgspec.json.decode(both.body)["keys"]) == both.fields["signature"].count("binding") == 2
        (tmp_path / "signing.key").unlink()
        assert (await door.ask(PATH)).body == both.body, "the last good keys stay published"


def test_a_listener_without_its_key_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="`crawler key new` makes it"):
        BotServer(config(**SIGNED), tmp_path, lambda: NOW)
