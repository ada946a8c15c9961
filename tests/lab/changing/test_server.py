"""Test the changing web over HTTP, and the accelerated clock."""

import asyncio
from email.utils import formatdate

import aiohttp

from crawler.clock import VirtualClock
from crawler.lab.changing.server import ChangingServer
from crawler.lab.changing.web import ChangingWeb, HostSpec
from crawler.lab.league.world import DAY


def _model(start: float) -> ChangingWeb:
    hosts = [
        HostSpec("right", pages=5, directories=1, rate=1.0 / DAY),
        HostSpec("liar", pages=5, directories=1, rate=1.0 / DAY, validators="always-304", feed=True),
    ]
    return ChangingWeb(hosts, horizon=100 * DAY, start=start)


async def test_the_web_over_http() -> None:
    """A client receives pages, conditional answers and dates, and its requests are logged.

    HEAD is answered like GET; POST is rejected.
    """
    clock = VirtualClock(1_700_000_000.0)
    model = _model(clock.now())

    async with ChangingServer(model, clock) as server, aiohttp.ClientSession() as session:
        assert [seed.split(":")[1] for seed in server.seeds()] == ["//127.0.0.21", "//127.0.0.22"]
        for page, later in ((0, 200), (5, 304)):
            url = model.url(page)
            async with session.get(url) as answer:
                assert (
                    answer.status == 200
                    and model.token(page, model.version(page, clock.now())) in await answer.text()
                )
                tag = answer.headers["ETag"]
                assert answer.headers["Date"] == formatdate(clock.now(), usegmt=True)
            clock.advance(next(at for at in model.changes[page] if at > clock.now()) - clock.now() + 1.0)
            async with session.get(url, headers={"If-None-Match": tag}) as answer:
                assert answer.status == later
            async with session.head(url) as answer:
                assert answer.status == 200 and not await answer.read()
        async with session.post(model.url(0)) as answer:
            assert answer.status == 405
        async with session.get(f"{model.origins[1]}/feed.xml") as answer:
            assert model.url(5) in await answer.text()
    assert [asked.status for asked in model.log] == [200, 200, 200, 200, 304, 200, 200]


async def test_each_of_many_hosts_has_an_address_of_its_own() -> None:
    """The addresses go on beyond 127.0.0.255."""
    model = ChangingWeb([HostSpec("h", pages=1, directories=1, rate=0.0)] * 300, horizon=1.0)
    async with ChangingServer(model, VirtualClock(0.0)) as server, aiohttp.ClientSession() as session:
        assert len(set(server.seeds())) == 300 and server.seeds()[235].startswith("http://127.0.1.0:")
        for host in (0, 234, 235, 299):
            async with session.get(model.url(host)) as answer:
                assert model.token(host, 0) in await answer.text()
    assert [asked.host for asked in model.log] == [0, 234, 235, 299]


async def test_a_slow_host_delays_only_its_own_answers() -> None:
    """The slow host would need a day; meanwhile, the other host answers."""
    hosts = [
        HostSpec("h", pages=1, directories=1, rate=0.0, slow=slow, slow_period=2.0) for slow in (DAY, 0.0)
    ]
    model, clock = ChangingWeb(hosts, horizon=10.0), VirtualClock(1.5)
    async with ChangingServer(model, clock), aiohttp.ClientSession() as session:
        waiting = asyncio.create_task(session.get(model.url(0)))
        for _ in range(3):
            async with session.get(model.url(1)) as answer:
                assert answer.status == 200
        assert not waiting.done()
        waiting.cancel()
    assert [asked.host for asked in model.log] == [1, 1, 1]
