"""`crawler crawl --login URL -d user=me -d password`: log in with a form, and crawl with that login.

    GET the form's page --> its fields and the given ones --> POST --> redirects --> cookies, DIR/cookies.txt (0600)

The session cookies are written to `DIR/cookies.txt`, and the crawl starts with them as with the cookies of
`--load-cookies`. The requests of the login are made for the user, so robots.txt does not apply to them, and
they are neither archived nor logged.
"""

import asyncio
import getpass
import sys
from collections.abc import Sequence

from msgspec.structs import replace

from crawler.api.page import Page
from crawler.api.request import Request as Submission
from crawler.clock import SystemClock
from crawler.config import Config
from crawler.errors import UsageError
from crawler.fetcher.address_guard import AddressGuard
from crawler.fetcher.client import Client
from crawler.fetcher.cookies import CookieJar, as_file, load_cookies
from crawler.fetcher.direct_requests import DirectRequests
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.resolver import Resolver
from crawler.process.fetching.hop_requests import redirected_options
from crawler.records import Outcome, RequestOptions
from crawler.urls.canonical import canonical, hostname, resolve


def fields(data: Sequence[str]) -> dict[str, str]:
    """Return the fields given by `-d`: NAME=VALUE or NAME. Without VALUE, the user is prompted for it, without echo."""
    found: dict[str, str] = {}
    for text in data:
        name, equals, value = text.partition("=")
        if not name:
            raise UsageError("--data: expected NAME=VALUE, or NAME alone to be prompted for its value")
        if not equals:
            if not sys.stdin.isatty():
                raise UsageError(
                    f"--data {name}: there is no terminal to prompt for its value; give {name}=VALUE"
                )
            value = getpass.getpass(f"{name}: ")
        found[name] = value
    return found


def log_in(url: str, sent: dict[str, str], config: Config) -> bytes:
    """Log in and return the received cookies as a cookie file, in a format that `--load-cookies` reads.

    Raise UsageError if the server does not answer or rejects the login.
    """
    target = canonical(url)
    if target is None:
        raise UsageError(f"--login {url!r} is not an http(s) URL")
    return as_file(asyncio.run(_log_in(target, sent, config))).encode()


async def _log_in(url: str, sent: dict[str, str], config: Config) -> CookieJar:
    visit = _Visit(config)
    await visit.client.start()
    try:
        page = await visit.ask(url, RequestOptions())
        try:
            form = page.submit(sent, css="form:has(input[type=password])")
        except ValueError:
            form = Submission(page.url, body=sent)
        answer = await visit.ask(form.url, form.options)
    finally:
        await visit.client.close()
        await visit.resolver.close()
    if _asks_again(answer, sent):
        raise UsageError(f"--login {url}: the server asks for the password again: user or password is wrong")
    if not len(visit.jar):
        raise UsageError(f"--login {url}: the server set no cookie, so the login failed")
    return visit.jar


class _Visit:
    """Requests that share one cookie jar and follow redirects."""

    def __init__(self, config: Config) -> None:
        clock, network = SystemClock(), config.network
        fetch = replace(config.fetch, cookies_file="")
        self.client = Client(fetch, config.identity, network, clock)
        self.resolver = Resolver(network, AddressGuard(network.allow_networks), clock)
        self._direct = DirectRequests(self.client, self.resolver, proxied=bool(fetch.proxy))
        self.jar = CookieJar(lasts=True)
        if config.fetch.cookies_file:
            self.jar = load_cookies(config.fetch.cookies_file, clock.now())
        self._config = config

    async def ask(self, url: str, options: RequestOptions) -> Page:
        """Return the page at the end of the redirects. Raise UsageError if the redirects do not lead to a page."""
        for _ in range(self._config.fetch.redirects_max + 1):
            task = FetchRequest(
                url, headers=options.headers, jar=self.jar, method=options.method, body=options.body
            )
            fetch = await self._direct.ask(task)
            if fetch.outcome is not Outcome.REDIRECT:
                break
            target = resolve(url, fetch.location)
            if target is None:
                break
            options = redirected_options(options, fetch.status, same_host=hostname(target) == hostname(url))
            url = target
        if not 200 <= fetch.status < 300:
            why = f"status {fetch.status}" if fetch.status else fetch.error or str(fetch.outcome)
            raise UsageError(f"--login {url}: {why}")
        return Page(
            url, fetch.status, str(fetch.outcome), 0, fetch.began, fetch.content_type, fetch.headers,
            fetch.content, charset=fetch.charset,
        )  # fmt: skip


def _asks_again(page: Page, sent: dict[str, str]) -> bool:
    """Return whether a page contains the form that was sent."""
    return any(
        sent.keys() & {each.attr("name") for each in form.css("input")}
        for form in page.css("form:has(input[type=password])")
    )
