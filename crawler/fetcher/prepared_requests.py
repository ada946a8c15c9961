"""Prepares requests for sending: adds cookies and a signature, and makes the copy that is recorded.

A request is recorded without the values of its cookies, credentials and signature (`redaction.py`).
"""

from typing import NamedTuple

from crawler.config import FetchConfig, IdentityConfig
from crawler.fetcher.answer import Answer
from crawler.fetcher.connector import Connector
from crawler.fetcher.cookies import CookieJar, load_cookies
from crawler.fetcher.fetch_request import Cookies, FetchRequest, RequestWriter, Target, split, user_agent
from crawler.fetcher.redaction import redacted_fields, redacted_head, redacted_request, redacted_signature
from crawler.records import Fetch
from crawler.signing.request_signer import make_signer


class PreparedRequest(NamedTuple):
    """A request that is ready to be sent. `shown` is its head as it is recorded, without secrets."""

    began: float
    target: Target
    jar: Cookies | None
    signed: bool
    sent: bytes
    shown: bytes


class PreparedRequests:
    """Prepares the requests of a client, and learns cookies and signature challenges from the answers.

    Raises:
        ConfigError: a configured header, cookie file or signing key cannot be used.
    """

    def __init__(self, fetch: FetchConfig, identity: IdentityConfig, now: float) -> None:
        self._writer = RequestWriter(identity, user_agent(identity))
        self._signer = make_signer(identity)
        self._jar: CookieJar | None = None
        if fetch.cookies_file:
            self._jar = load_cookies(fetch.cookies_file, now, fetch.cookie_domains_max)
        elif fetch.cookies is True:
            self._jar = CookieJar(fetch.cookie_domains_max, lasts=True)

    def prepare(self, request: FetchRequest, connector: Connector, began: float) -> PreparedRequest:
        """Return the request with its cookies and its signature, in the form that the connector's proxy needs."""
        target = split(request.url)
        jar = request.jar if request.jar is not None else self._jar
        cookie = jar.header(target, began) if jar is not None else ""
        signature = self._signer.fields(target.host, began) if self._signer is not None else ""
        sent = shown = self._writer.head(request, target, cookie=cookie, signature=signature)
        if cookie or self._writer.is_secret(request):
            shown = redacted_head(shown)
        elif signature:
            shown = redacted_signature(shown)
        proxy = connector.proxy
        if proxy is not None and proxy.forwards and target.scheme == "http":
            sent = self._writer.head(
                request,
                target,
                cookie=cookie,
                signature=signature,
                proxied=True,
                authorization=proxy.authorization,
            )
        return PreparedRequest(began, target, jar, bool(signature), sent + request.body, shown)

    def learn(self, prepared: PreparedRequest, answer: Answer, fetch: Fetch) -> None:
        """Note what an answer says about signatures and cookies. The values of lasting cookies are not recorded."""
        if self._signer is not None and fetch.status:
            fetch.challenged = self._signer.note(
                prepared.target.host, fetch.status, fetch.headers, signed=prepared.signed
            )
        if prepared.jar is not None and answer.head is not None:
            prepared.jar.store(prepared.target, answer.head.values(b"set-cookie"), prepared.began)
            if prepared.jar.lasts:
                _redact_cookies(fetch)


def record_request(fetch: Fetch, request: FetchRequest, prepared: PreparedRequest) -> None:
    """Record the request in its result, without secrets."""
    fetch.request_head = fetch.part.head.request if fetch.part is not None else prepared.shown
    if request.body:
        fetch.request_head, fetch.request_body = redacted_request(
            prepared.shown, request.body, request.secrets
        )


def _redact_cookies(fetch: Fetch) -> None:
    """Remove the values of cookies from the recorded header fields of an answer."""
    shown = redacted_fields(fetch.headers)
    if shown != fetch.headers:
        fetch.headers, fetch.head_block, fetch.known = shown, b"", None
