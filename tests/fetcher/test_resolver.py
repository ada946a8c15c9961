"""Test the resolver (`fetcher/README.md`, "Addresses") with a name server on loopback."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from crawler.clock import VirtualClock
from crawler.config import NetworkConfig, Seconds
from crawler.fetcher import dns_cache
from crawler.fetcher.address_guard import AddressGuard
from crawler.fetcher.dns_cache import DnsCache, Resolution
from crawler.fetcher.resolver import Resolver
from crawler.records import Outcome
from tests.fetcher.dns_server import AAAA, CNAME, NXDOMAIN, SERVFAIL, A, NameServer
from tests.fetcher.scripted import run

RECORDS: dict[str, list[tuple[int, int, str]] | int | None] = {
    "both.test": [(AAAA, 300, "2606:4700::1"), (A, 900, "8.8.8.8"), (A, 500, "9.9.9.9")],
    "short.test": [(A, 5, "8.8.8.8")],
    "long.test": [(A, 10_000_000, "8.8.8.8")],
    "six.test": [(AAAA, 300, "2606:4700::1")],
    "denied.test": [(A, 300, "10.0.0.1"), (AAAA, 300, "::1"), (AAAA, 300, "::ffff:127.0.0.1")],
    "mixed.test": [(A, 300, "127.0.0.1"), (A, 300, "8.8.4.4")],
    "none.test": [],
    "gone.test": NXDOMAIN,
    "broken.test": SERVFAIL,
    "silent.test": None,
}

# name -> (addresses, seconds in the cache, outcome)
ANSWERS = [
    ("both.test", ("8.8.8.8", "9.9.9.9", "2606:4700::1"), 300.0, None),
    ("short.test", ("8.8.8.8",), 60.0, None),
    ("long.test", ("8.8.8.8",), 86_400.0, None),
    ("six.test", ("2606:4700::1",), 300.0, None),
    ("denied.test", (), 300.0, Outcome.ADDRESS_DENIED),
    ("mixed.test", ("8.8.4.4",), 300.0, None),
    ("none.test", (), 3600.0, Outcome.DNS_NOT_FOUND),
    ("gone.test", (), 3600.0, Outcome.DNS_NOT_FOUND),
    ("broken.test", (), None, Outcome.DNS_ERROR),
    ("silent.test", (), None, Outcome.DNS_ERROR),
    ("x" * 64 + ".test", (), 3600.0, Outcome.DNS_NOT_FOUND),
]


@contextlib.asynccontextmanager
async def serving(
    records: dict[str, list[tuple[int, int, str]] | int | None] = RECORDS, **changes: object
) -> AsyncIterator[tuple[Resolver, NameServer, VirtualClock]]:
    """Yield a resolver, the name server that it uses, and its clock."""
    clock = VirtualClock()
    async with NameServer(dict(records)) as server:
        config = NetworkConfig(dns_servers=(server.address,), **changes)  # type: ignore[arg-type]
        resolver = Resolver(config, AddressGuard(), clock)
        try:
            yield resolver, server, clock
        finally:
            await resolver.close()


@pytest.mark.parametrize(
    ("name", "addresses", "kept", "outcome"), ANSWERS, ids=[row[0][:9] for row in ANSWERS]
)
def test_answers(name: str, addresses: tuple[str, ...], kept: float | None, outcome: Outcome | None) -> None:
    """A resolution is cached for its time to live. Afterwards, the name is looked up again."""

    async def play() -> None:
        async with serving(dns_timeout=Seconds(0.2)) as (resolver, server, clock):
            got = await resolver.resolve(name)
            assert (got.addresses, got.outcome) == (addresses, outcome)
            assert bool(got.error) is (outcome is not None)
            known = resolver.cached(name, clock.now())
            if kept is None:
                assert known is None, "a passing failure is not cached"
                return
            assert known == got and got.expires == clock.now() + kept
            asked = len(server.asked)
            clock.advance(kept - 0.001)
            assert await resolver.resolve(name) == got and len(server.asked) == asked
            clock.advance(0.002)
            assert resolver.cached(name, clock.now()) is None

    run(play())


LOCAL = [
    ("8.8.8.8", ("8.8.8.8",), None),
    ("[2606:4700::1]", ("2606:4700::1",), None),
    ("2606:4700:0:0::1", ("2606:4700::1",), None),
    ("127.0.0.1", (), Outcome.ADDRESS_DENIED),
    ("localhost", (), Outcome.ADDRESS_DENIED),
    ("a.localhost", (), Outcome.ADDRESS_DENIED),
    ("intranet", ("8.1.1.1", "8.1.1.2"), None),
    ("alias.test", ("8.1.1.1",), None),
    ("1.2.3", (), Outcome.DNS_NOT_FOUND),
    ("1.2.3.4.5", (), Outcome.DNS_NOT_FOUND),
    ("0x7f.1", (), Outcome.DNS_NOT_FOUND),
    ("host.0x1", (), Outcome.DNS_NOT_FOUND),
    ("", (), Outcome.DNS_NOT_FOUND),
]


@pytest.mark.parametrize(("name", "addresses", "outcome"), LOCAL, ids=[row[0] for row in LOCAL])
async def test_names_that_are_never_looked_up(
    tmp_path: Path, name: str, addresses: tuple[str, ...], outcome: Outcome | None
) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# a comment\n8.1.1.1 Intranet alias.test # x\n8.1.1.2 intranet\nbad line\n\n")

    config = NetworkConfig(dns_servers=("127.0.0.1:1",))
    resolver = Resolver(config, AddressGuard(), VirtualClock(), hosts_file=hosts)
    got = await resolver.resolve(name)
    assert (got.addresses, got.outcome) == (addresses, outcome)
    assert resolver.cached(name, 1_000_000.0) == got
    await resolver.close()


def test_a_missing_hosts_file_is_ignored(tmp_path: Path) -> None:
    resolver = Resolver(NetworkConfig(), AddressGuard(), VirtualClock(), hosts_file=tmp_path / "none")
    assert resolver.cached("intranet", 0.0) is None


async def test_aliases_share_the_smallest_ttl() -> None:
    records = {"alias.test": [(CNAME, 70, "alias.test"), (A, 500, "8.8.8.8")]}
    async with serving(records) as (resolver, _, clock):  # type: ignore[arg-type]
        got = await resolver.resolve("alias.test")
        assert (got.addresses, got.expires) == (("8.8.8.8",), clock.now() + 70.0)


async def test_one_look_up_per_name_and_few_in_all() -> None:
    """Twenty callers for a name cause one look-up. Look-ups of dead names wait for one another, but not long."""
    async with serving(dns_timeout=Seconds(0.1), dns_concurrency=2) as (resolver, server, _):
        found = await asyncio.gather(*(resolver.resolve("both.test") for _ in range(20)))
        assert len(set(found)) == 1
        assert sorted(kind for name, kind in server.asked if name == "both.test") == [A, AAAA]
        for number in range(16):
            server.records[f"dead{number}.test"] = None
        loop = asyncio.get_running_loop()
        before = loop.time()
        await asyncio.gather(*(resolver.resolve(f"dead{number}.test") for number in range(16)))
        assert loop.time() - before >= 0.19, "eight at a time: two with callers, and six abandoned"


async def test_an_impatient_caller_gives_up_and_finds_the_late_answer_later() -> None:
    """The queries for A and AAAA continue to the end, although no caller waits for the answers."""
    async with serving(dns_patience=Seconds(0.02)) as (resolver, server, _):
        server.records["late.test"] = None
        got = await resolver.resolve("late.test", patient=False)
        assert (got.addresses, got.outcome) == ((), Outcome.DNS_ERROR)
        assert sorted(kind for name, kind in server.asked if name == "late.test") == [A, AAAA]
        server.records["late.test"] = [(A, 300, "8.8.8.8")]
        server.ask_again("late.test")
        assert (await resolver.resolve("late.test")).addresses == ("8.8.8.8",)
        assert resolver.cached("late.test", 1_000_000.0)


async def test_a_silent_aaaa_does_not_hold_up_the_a_record() -> None:
    async with serving() as (resolver, server, _):
        server.silent.add(("both.test", AAAA))
        got = await resolver.resolve("both.test")
        assert got.addresses == ("8.8.8.8", "9.9.9.9")


async def test_a_caller_that_gives_up_does_not_end_the_shared_look_up() -> None:
    async with serving() as (resolver, _, _clock):
        first = asyncio.create_task(resolver.resolve("both.test"))
        second = asyncio.create_task(resolver.resolve("both.test"))
        await asyncio.sleep(0)
        first.cancel()
        assert (await second).addresses


async def test_closing_ends_look_ups_in_progress() -> None:
    async with serving() as (resolver, _, _clock):
        task = asyncio.create_task(resolver.resolve("silent.test"))
        await asyncio.sleep(0.01)
        await resolver.close()
        with pytest.raises(asyncio.CancelledError):
            await task


def test_the_cache_against_a_dict() -> None:
    for seed in range(50):
        generator = random.Random(seed)
        cache, model, now = DnsCache(4), dict[str, Resolution](), 0.0
        for _ in range(100):
            now += generator.random()
            name = generator.choice("abcdefg")
            if generator.random() < 0.5:
                resolution = Resolution(("8.8.8.8",), now + generator.random() * 4)
                model.pop(name, None)
                if len(model) == 4:
                    del model[next(iter(model))]
                cache.put(name, resolution)
                model[name] = resolution
            else:
                expected = model.get(name)
                if expected is not None and expected.expires <= now:
                    expected = model.pop(name) and None
                assert cache.get(name, now) == expected
            cache._check()
            assert len(cache) == len(model)


def test_hosts_file_is_bounded() -> None:
    names = dns_cache.local_names((f"8.8.8.8 n{number}" for number in range(100)), names_max=10)
    assert len(names) == 10
