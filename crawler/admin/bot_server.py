"""The public listener, which serves a page about this crawler and the public keys of its signatures.

    GET  /  /bot                                            the page for webmasters
    GET  /.well-known/http-message-signatures-directory     the key directory, signed by its keys

The public listener shows nothing of the dashboard, reads only the configuration and the public keys of the
crawl, and accepts no input. So it may listen on a public address, behind a server that handles TLS for the
URL `identity.signature_agent`.
"""

import logging
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

from crawler.admin import bot
from crawler.config import Config
from crawler.errors import ConfigError
from crawler.serve.header_fields import Field, head, not_modified
from crawler.serve.host_check import parse_address
from crawler.serve.http_error import HttpError, check_method
from crawler.serve.http_server import HttpListener, Sending, ServedConnection, error_reply
from crawler.serve.reply import Reply
from crawler.serve.request_reader import ServedRequest
from crawler.signing.key_directory import MEDIA_TYPE, PATH, directory_body, proof_fields
from crawler.signing.key_file import OFF, KeyFile, key_path
from crawler.signing.signing_keys import DIRECTORY_AGE

log = logging.getLogger("crawler")

KEY = "serve.bot_listen"
PAGE_AGE = 3600  # seconds for which clients may cache the page
RENEWAL = 3600.0  # seconds after which the key directory is signed again
_PAGE_FIELDS: tuple[Field, ...] = (
    (b"Content-Type", b"text/html; charset=utf-8"),
    (b"Cache-Control", b"max-age=%d" % PAGE_AGE),
    (b"Content-Security-Policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
)
_DIRECTORY_FIELDS: tuple[Field, ...] = (
    (b"Content-Type", MEDIA_TYPE.encode()),
    (b"Cache-Control", b"max-age=%d" % DIRECTORY_AGE),
    (b"Access-Control-Allow-Origin", b"*"),
)
_COMMON: tuple[Field, ...] = ((b"X-Content-Type-Options", b"nosniff"), (b"Referrer-Policy", b"no-referrer"))


class BotServer:
    """Serves the page about the bot and, if the crawl signs its requests, the key directory.

    Raises:
        ConfigError: the key file cannot be used.
    """

    def __init__(self, config: Config, directory: Path, now: Callable[[], float]) -> None:
        self._agent = config.identity.signature_agent
        self._now = now
        self._page = bot.page(config, public=True)
        self._keys = None if config.identity.signature == OFF else KeyFile(key_path(config, directory))
        self._signed: tuple[bytes, list[Field]] = b"", []
        self._renew_at = 0.0
        serve = config.serve
        self.listener = HttpListener(
            self._answer,
            now,
            connections_max=serve.connections_max,
            header_bytes_max=serve.header_bytes_max,
            idle_timeout=serve.idle_timeout,
            write_timeout=serve.write_timeout,
        )

    async def start(self, text: str) -> tuple[str, int]:
        """Listen at "ADDRESS:PORT"; return the address in use.

        Raises:
            ConfigError: the server cannot listen on the address, or the address is in use.
        """
        await self.listener.start(parse_address(text, KEY), KEY)
        return self.listener.address

    async def close(self) -> None:
        """Stop listening."""
        await self.listener.close()

    async def _answer(self, request: ServedRequest, _connection: ServedConnection) -> Sending:
        try:
            return Sending(self._reply(request))
        except HttpError as refusal:
            return Sending(error_reply(refusal, request.headers.get("Accept", "")), close=True)

    def _reply(self, request: ServedRequest) -> Reply:
        path = request.raw_path.partition("?")[0]
        if path not in ("/", "/bot") and (path != PATH or self._keys is None):
            raise HttpError(404, "no_such_path", f"see /bot and {PATH}")
        check_method(request.method, ("GET", "HEAD"))
        if self._keys is None or path != PATH:
            return _found(request, self._page, _PAGE_FIELDS)
        body, proof = self._directory(self._keys)
        return _found(request, body, (*_DIRECTORY_FIELDS, *proof))

    def _directory(self, file: KeyFile) -> tuple[bytes, list[Field]]:
        """Return the key directory and the header fields that sign it.

        Both are made again every hour, and when the keys change.
        """
        now = self._now()
        try:
            changed = file.renew()
        except ConfigError as error:
            changed = False
            log.warning("%s; the previous keys are published", error)
        if changed or now >= self._renew_at:
            body = directory_body(file.keys, now)
            proof = [
                (name.encode(), value.encode())
                for name, value in proof_fields(body, file.keys, self._agent, now)
            ]
            self._signed, self._renew_at = (body, proof), now + RENEWAL
        return self._signed


def _found(request: ServedRequest, body: bytes, fields: tuple[Field, ...]) -> Reply:
    etag = f'"{sha256(body).hexdigest()[:32]}"'
    fields = (*fields, *_COMMON, (b"ETag", etag.encode()))
    if not_modified(request.headers.get("If-None-Match", ""), None, etag, 0.0):
        return Reply(304, head(304, "Not Modified", fields), 0, b"")
    return Reply(200, head(200, "OK", fields), len(body), body)
