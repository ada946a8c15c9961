"""Test the changing web over HTTP, and the accelerated clock."""

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
