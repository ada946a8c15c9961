"""The changing web on loopback: one address a host, one port, answers by `web.ChangingWeb`.

    web = ChangingWeb(hosts, horizon=1461 * DAY, start=clock.now())
    async with ChangingServer(web, clock) as server:
        ... crawl server.seeds() on the same clock ...
    web.freshness(begin, end)

`FastClock` makes a day pass in a fraction of a second: give it to the server and to
the crawl. The web's dates (Date, Last-Modified, lastmod) are those of the clock, so a
crawl on the same clock finds them in the past.
"""

import socket
import time
from email.utils import formatdate

from aiohttp import web

from crawler.clock import Clock
from crawler.lab.changing.web import ChangingWeb

FIRST_ADDRESS = 21  # hosts are 127.0.0.21, 127.0.0.22, ...
HOSTS_MAX = 200

# Of a crawl of this web by the command line, in TOML: none of the waits that the real web asks for.
LOOPBACK = """
[network]
allow_networks = ["127.0.0.0/8"]
[politeness]
delay = 0.02
delay_factor = 0.0
address_delay_share = 0.0
[sitemaps]
robots = false
[due]
max_wait = 0.2
[admin]
address = "off"
[store]
durability = "process"
"""


class FastClock:
    """Wall time at the start, from then on `speed` seconds for each that passes."""

    def __init__(self, speed: float) -> None:
        if not 0.0 < speed < float("inf"):
            raise ValueError(f"speed {speed}: a clock goes forward")
        self.speed = speed
        self._start = time.time()
        self._began = time.monotonic()

    def now(self) -> float:
        return self._start + (time.monotonic() - self._began) * self.speed


class ChangingServer:
    """Serves a changing web until closed; use as an async context manager."""

    def __init__(self, model: ChangingWeb, clock: Clock) -> None:
        if len(model.hosts) > HOSTS_MAX:
            raise ValueError(f"{len(model.hosts)} hosts; there are addresses for {HOSTS_MAX}")
        self.model = model
        self.port = 0
        self._clock = clock
        self._runners: list[web.ServerRunner] = []

    async def __aenter__(self) -> "ChangingServer":
        for number in range(len(self.model.hosts)):
            runner = web.ServerRunner(web.Server(self._answerer(number), access_log=None))
            self._runners.append(runner)
            await runner.setup()
            await web.SockSite(runner, self._listen(number)).start()
            self.model.origins[number] = f"http://{self._address(number)}:{self.port}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()

    @staticmethod
    def _address(number: int) -> str:
        return f"127.0.0.{FIRST_ADDRESS + number}"

    def _listen(self, number: int) -> socket.socket:
        """A socket of the host's address, on the port that the system gave the first."""
        link = socket.socket()
        link.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        link.bind((self._address(number), self.port))
        self.port = link.getsockname()[1]
        return link

    def seeds(self) -> list[str]:
        """The first page of each host."""
        return [f"{origin}/" for origin in self.model.origins]

    def _answerer(self, host: int):  # type: ignore[no-untyped-def]  # aiohttp's handler type is private
        async def answer(request: web.BaseRequest) -> web.StreamResponse:
            if request.method not in ("GET", "HEAD"):
                return web.Response(status=405)
            now = self._clock.now()
            headers = {name.lower(): value for name, value in request.headers.items()}
            given = self.model.answer(host, request.path, headers, now)
            sent = {**given.headers, "Date": formatdate(now, usegmt=True)}
            return web.Response(status=given.status, headers=sent, body=given.body)

        return answer

    def __repr__(self) -> str:
        return f"ChangingServer({self.model!r} on port {self.port})"
