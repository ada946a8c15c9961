"""Test the splitter with real sockets on loopback: without a secret, with a secret, and with mutual TLS.

Some peers have a wrong secret, do not identify themselves, or do not answer.
"""

import asyncio
import errno
import gc
import logging
import os
import random
import shutil
import socket
import ssl
import subprocess
import warnings
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import ClassVar

import msgspec
import pytest
import uvloop

from crawler.clock import SystemClock
from crawler.config import SplitterConfig
from crawler.config.checks import check_limits
from crawler.config.forms import host_port, named_addresses
from crawler.errors import ConfigError, DamageError, DirectoryError, StoreError
from crawler.splitter import peers as peers_module
from crawler.splitter.coordination import Coordination, Progress
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.splitter.partition import Partition
from crawler.splitter.peers import Peers, Strangers, is_loopback, listen_address, tls_contexts
from crawler.splitter.session import Common, Identity, Listener
from crawler.splitter.wire import WITHOUT_ASKS, Ask, AskedRequest, Open, Reason
from crawler.storage.kv import MemoryStore
from tests.splitter.links import make_links

NAMES = ["p0", "p1"]


class Process:
    """A process without a crawl, which commits received entries immediately, in the event loop.

    `made` lists the processes of the test.
    """

    made: ClassVar[list["Process"]] = []

    def __init__(
        self,
        name: str,
        config: SplitterConfig,
        *,
        secret: bytes = b"",
        crawl: str = "crawl",
        incarnation: int = 0,
        store: MemoryStore | None = None,
        boot: bytes = b"",
        names: Sequence[str] = NAMES,
    ) -> None:
        self.name = name
        self.store = store or MemoryStore()
        self.partition = Partition.equal_ranges(list(names))
        self.others = [other for other in names if other != name]
        rng = random.Random(name * (1 + incarnation))
        boot = boot or rng.randbytes(8)
        self.outbox = Outbox(self.store, self.others, config, rng)
        self.inbox = Inbox(self.store, self.partition, name, self.others, config)
        self.coordination = Coordination(name, list(names), boot, self.progress)
        self.received: list = []
        self.common = Common(
            Identity(crawl, name, boot, 1, b"check", incarnation),
            self.partition,
            self.outbox,
            self.inbox,
            self.coordination,
            config,
            rng,
            secret=secret,
        )
        self.news = asyncio.Event()
        self.failures: list = []
        self.newer: list[int] = []
        self.peers = Peers(
            self.common,
            {other: ("127.0.0.1", 1) for other in self.others},
            SystemClock(),
            on_news=self.on_news,
            on_failure=self.failures.append,
            on_older=self.newer.append,
        )
        self.made.append(self)

    def on_news(self) -> None:
        self.news.set()
        self.commit([])

    def commit(self, items: list) -> None:
        received = self.inbox.take()
        self.received += [link for entry in received for link in entry.links]
        batch = self.store.batch(sync=True)
        self.outbox.write(items)
        self.inbox.write(received)
        self.outbox.stage(batch)
        self.inbox.stage(batch)
        self.store.write(batch)
        self.outbox.committed()
        self.inbox.committed()
        asyncio.get_running_loop().call_soon(self.peers.flush, self.outbox.spools)

    def progress(self) -> Progress:
        return Progress(True, self.outbox.links, self.outbox.appended, self.inbox.applied, work=1)

    def links_for(self, other: str, count: int) -> list:
        first, last = next((first, last) for name, first, last in self.partition.ranges() if name == other)
        return make_links(random.Random(count), count, first=first, last=last)


async def reached(condition: Callable[[], bool], limit: float = 10.0) -> None:
    """Run the event loop until `condition` holds. The time limit matters only if the test fails."""
    async with asyncio.timeout(limit):
        while not condition():
            await asyncio.sleep(0.002)


def run(main: Callable[[], Awaitable[None]], *, use_uvloop: bool) -> None:
    """Run a test. If it fails, close its peers, because the loop would wait for them."""

    async def closed_if_it_fails() -> None:
        try:
            await main()
        except BaseException:
            await asyncio.gather(*(each.peers.close() for each in Process.made), return_exceptions=True)
            raise
        finally:
            Process.made.clear()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop if use_uvloop else None) as runner:
        runner.run(closed_if_it_fails())


async def start(*processes: Process) -> list[tuple[str, int]]:
    addresses = [await process.peers.start() for process in processes]
    for process in processes:
        for other, address in zip(processes, addresses, strict=True):
            if other is not process:
                process.peers.set_address(other.name, address)
    return addresses


CONFIG = SplitterConfig(backoff_min=0.01, backoff_max=0.05, heartbeat=0.05, window_bytes=20_000)


async def goes_on(process: Process, *others: Process) -> None:
    """Assert that a process sends links to all others and that none of them has failed. Close them."""
    for other in others:
        process.commit([(other.name, process.links_for(other.name, 10))])
    await reached(lambda: all(len(other.received) == 10 for other in others))
    assert not any(each.failures for each in (process, *others))
    for each in (process, *others):
        await each.peers.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a certificate authority, its certificate for 127.0.0.1, and a certificate of another authority."""
    folder = tmp_path_factory.mktemp("tls")
    for name, issuer in (("ca", None), ("node", "ca"), ("other", None)):
        command = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:P-256",
            "-nodes",
        ]
        command += ["-days", "30", "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem"]
        if issuer:
            command += ["-CA", f"{issuer}.pem", "-CAkey", f"{issuer}.key"]
            command += [
                "-addext",
                "subjectAltName=IP:127.0.0.1",
                "-addext",
                "basicConstraints=critical,CA:false",
            ]
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return folder


def with_tls(folder: Path, name: str = "node") -> SplitterConfig:
    return msgspec.structs.replace(
        CONFIG,
        tls_certificate=str(folder / f"{name}.pem"),
        tls_key=str(folder / f"{name}.key"),
        tls_authority=str(folder / "ca.pem"),
    )


REQUEST = AskedRequest("http://a.org/robots.txt")


def test_a_peer_is_asked_for_a_request_across_a_broken_connection() -> None:
    """If the connection breaks before the answer, the question is asked again on the next connection."""

    async def main() -> None:
        p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
        questions: list[tuple[Listener, Ask]] = []
        p1.common.asked = lambda session, ask: questions.append((session, ask))
        asking = asyncio.create_task(p0.peers.questions.ask("p1", REQUEST, 30.0))
        await start(p0, p1)
        await reached(lambda: len(questions) == 1)
        for connection in tuple(p1.peers._connections):
            connection.abort()
        await reached(lambda: len(questions) == 2)
        p1.peers.questions.answer(
            questions[0][0], questions[0][1].number, b"of the broken connection", lambda: None
        )
        p1.peers.questions.answer(questions[1][0], questions[1][1].number, b"answer", lambda: None)
        assert await asking == b"answer" and questions[1][1].request == REQUEST
        await goes_on(p0, p1)

    run(main, use_uvloop=True)


def test_a_request_that_must_not_be_made_twice_is_not_repeated() -> None:
    """It is not known whether the peer had made the request before the connection broke."""

    async def main() -> None:
        p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
        questions: list[Ask] = []
        p1.common.asked = lambda session, ask: questions.append(ask)
        post = AskedRequest("http://a.org/", "POST")
        asking = asyncio.create_task(p0.peers.questions.ask("p1", post, 30.0))
        await start(p0, p1)
        await reached(lambda: len(questions) == 1)
        for connection in tuple(p1.peers._connections):
            connection.abort()
        assert await asking == b"" and len(questions) == 1
        await goes_on(p0, p1)

    run(main, use_uvloop=True)


@pytest.mark.parametrize("use_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_a_long_answer_waits_until_the_peer_reads(use_uvloop: bool) -> None:
    """The socket of a peer that reads nothing gets only as much as its transport should hold."""
    answer = bytes(8 << 20)

    async def main() -> None:
        p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
        sent: list[bool] = []

        def asked(session: Listener, ask: Ask) -> None:
            for connection in p0.peers._connections:
                connection._transport.pause_reading()  # type: ignore[union-attr]
            p1.peers.questions.answer(session, ask.number, answer, lambda: sent.append(True))

        p1.common.asked = asked
        await start(p0, p1)
        asking = asyncio.create_task(p0.peers.questions.ask("p1", REQUEST, 30.0))
        await reached(lambda: any(each._is_full for each in p1.peers._connections))
        for _ in range(1000):
            await asyncio.sleep(0)
        held = [each._transport.get_write_buffer_size() for each in p1.peers._connections]  # type: ignore[union-attr]
        assert max(held) < 1 << 20 and not sent
        for connection in p0.peers._connections:
            connection._transport.resume_reading()  # type: ignore[union-attr]
        assert await asking == answer and sent == [True]
        await goes_on(p0, p1)

    run(main, use_uvloop=use_uvloop)


def test_a_peer_that_is_gone_gives_no_answer() -> None:
    async def main() -> None:
        p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
        await start(p0, p1)
        p1.common.asked = lambda session, ask: p1.news.set()
        p1.news.clear()
        asking = asyncio.create_task(p0.peers.questions.ask("p1", REQUEST, 0.5))
        await reached(p1.news.is_set)
        await p1.peers.close()
        assert await asking == b""
        await p0.peers.close()

    run(main, use_uvloop=True)


def test_a_peer_that_does_not_answer_in_time_gives_no_answer() -> None:
    """The peer stays connected. Its answer comes too late and is ignored."""

    async def main() -> None:
        p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
        questions: list[tuple[Listener, Ask]] = []
        p1.common.asked = lambda session, ask: questions.append((session, ask))
        await start(p0, p1)
        async with asyncio.timeout(10.0):
            assert await p0.peers.questions.ask("p1", REQUEST, 0.3) == b""
        session, ask = questions[-1]  # if the connection broke, the question was asked again
        p1.peers.questions.answer(session, ask.number, b"late", lambda: None)
        await goes_on(p0, p1)

    run(main, use_uvloop=True)


def test_a_peer_of_the_earlier_protocol_gets_links_but_no_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """The earlier version refuses the newer number, so the next connection uses its number."""

    def on_open(listener: Listener, message: Open, now: float) -> None:
        if listener.common is p1.common and message.protocol != WITHOUT_ASKS:
            listener._refuse(Reason.PROTOCOL, "expected protocol 8")
        else:
            real(listener, message, now)

    real = Listener._on_open
    monkeypatch.setattr(Listener, "_on_open", on_open)
    p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)

    async def main() -> None:
        await start(p0, p1)
        assert await p0.peers.questions.ask("p1", REQUEST, 10.0) is None
        await goes_on(p0, p1)

    run(main, use_uvloop=True)


@pytest.mark.parametrize("use_uvloop", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("mode", ["plain", "secret", "tls"])
def test_links_cross_in_both_directions(mode: str, use_uvloop: bool, authority: Path) -> None:
    config = with_tls(authority) if mode == "tls" else CONFIG
    secret = b"" if mode == "plain" else b"0123456789abcdef"

    async def main() -> None:
        p0, p1 = Process("p0", config, secret=secret), Process("p1", config, secret=secret)
        await start(p0, p1)
        p0.commit([("p1", p0.links_for("p1", 2000))])
        p1.commit([("p0", p1.links_for("p0", 1500))])
        await reached(lambda: p0.outbox.links == p1.outbox.links == 0)
        assert p1.received == p0.links_for("p1", 2000)
        assert p0.received == p1.links_for("p0", 1500)
        await reached(lambda: p0.coordination.ended and p1.coordination.ended)
        status = p0.peers.status()["p1"]
        assert status.connected and status.outbox_links == 0
        await asyncio.gather(p0.peers.close(), p1.peers.close())
        p0.outbox._check()

    run(main, use_uvloop=use_uvloop)


@pytest.mark.parametrize("use_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_a_peer_that_comes_back_gets_the_waiting_links(use_uvloop: bool) -> None:
    async def main() -> None:
        p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
        await start(p0, p1)
        p0.commit([("p1", p0.links_for("p1", 100))])
        await reached(lambda: p0.outbox.links == 0)
        await p1.peers.close()
        p0.commit([("p1", p0.links_for("p1", 300))])
        await reached(lambda: not p0.peers.status()["p1"].connected)
        again = Process("p1", CONFIG)
        again.store = p1.store
        again.inbox = again.common.inbox = Inbox(p1.store, again.partition, "p1", ["p0"], CONFIG)
        p0.peers.set_address("p1", await again.peers.start())
        await reached(lambda: p0.outbox.links == 0)
        assert again.received == p0.links_for("p1", 300)
        await asyncio.gather(p0.peers.close(), again.peers.close())

    run(main, use_uvloop=use_uvloop)


async def test_the_older_of_a_node_and_its_copy_stops() -> None:
    """A peer tells the older process that a newer start of it is running. The newer process continues."""
    other, copy = Process("p1", CONFIG), Process("p0", CONFIG, incarnation=2)
    addresses = await start(other, copy)
    copy.commit([("p1", copy.links_for("p1", 10))])
    await reached(lambda: len(other.received) == 10)
    older = Process("p0", CONFIG, incarnation=1)
    await older.peers.start()
    older.peers.set_address("p1", addresses[0])
    older.commit([("p1", older.links_for("p1", 10))])
    await reached(lambda: bool(older.failures))
    assert isinstance(older.failures[0], DirectoryError) and older.failures[0].exit_code == 3
    assert "stopped, because p1 says: p0: a newer start" in str(older.failures[0])
    assert not copy.failures and not other.failures
    for process in (other, copy, older):
        await process.peers.close()


async def test_a_copy_that_replaces_the_original_is_not_stopped_by_what_the_original_confirms() -> None:
    """The queue of the copy is of an earlier state, so the copy renumbers it and connects a second time.

    The original takes links of the peer until it is stopped. If it confirmed them after the copy was accepted,
    the peer would refuse the copy at its second connection, and no process of this name would remain.
    """
    other, original = Process("p1", CONFIG), Process("p0", CONFIG, incarnation=1)
    addresses = await start(other, original)
    original.commit([("p1", original.links_for("p1", 10))])
    await reached(lambda: len(other.received) == 10 and not original.outbox.links)
    copied = MemoryStore(dict(original.store._data))
    original.commit([("p1", original.links_for("p1", 20))])
    await reached(lambda: len(other.received) == 30 and not original.outbox.links)
    copy = Process("p0", CONFIG, incarnation=2, store=copied)
    copy.peers._on_news = lambda: None  # the renumbered queue waits for the commit below
    address = await copy.peers.start()
    copy.peers.set_address("p1", addresses[0])
    await reached(lambda: copy.outbox.urgent)
    other.commit([("p0", other.links_for("p0", 40))])
    await reached(lambda: not other.outbox.links or "newer start" in other.peers.status()["p0"].last_ending)
    copy.commit([("p1", copy.links_for("p1", 5))])
    await reached(lambda: bool(copy.failures) or not copy.outbox.links)
    assert not copy.failures
    await reached(lambda: bool(original.failures))
    assert "a newer start" in str(original.failures[0])
    other.peers.set_address("p0", address)
    copy.peers._on_news = copy.on_news
    await reached(lambda: len(copy.received) == 40)
    assert not copy.failures and not original.received
    for process in (other, original, copy):
        await process.peers.close()


@pytest.mark.parametrize("original", [b"boot 1", b"boot 3"])
async def test_of_a_node_and_its_copy_started_at_the_same_time_exactly_one_goes_on(original: bytes) -> None:
    """Each of the two is first connected to another peer.

    Both starts have the same number, for example because the clock of their machine is behind.
    """
    names = ["p0", "p1", "p2"]
    one, two = (Process(name, CONFIG, names=names) for name in ("p1", "p2"))
    twins = [Process("p0", CONFIG, incarnation=5, boot=boot, names=names) for boot in (original, b"boot 2")]
    addresses = [await process.peers.start() for process in (one, two, *twins)]
    for twin, first, name in zip(twins, addresses, ("p1", "p2"), strict=False):
        twin.peers.set_address(name, first)
    await reached(lambda: all(other.peers.status()["p0"].connected for other in (one, two)))
    for twin, second, name in zip(twins, reversed(addresses[:2]), ("p2", "p1"), strict=True):
        twin.peers.set_address(name, second)
    lower, higher = sorted(twins, key=lambda twin: twin.common.identity.boot)
    await reached(lambda: bool(lower.failures))
    assert "was started at the same time" in str(lower.failures[0])
    await lower.peers.close()
    await goes_on(higher, one, two)


async def test_a_copy_of_an_earlier_state_does_not_stop_the_original_that_it_cannot_replace() -> None:
    """A peer refuses a copy that lacks links of another peer which the original has received."""
    names = ["p0", "p1", "p2"]
    one, two, original = (Process(name, CONFIG, names=names) for name in ("p1", "p2", "p0"))
    addresses = await start(one, two, original)
    copied = MemoryStore(dict(original.store._data))
    two.commit([("p0", two.links_for("p0", 10))])
    await reached(lambda: one.coordination.applied_by("p0", original.common.identity.boot) == 10)
    copy = Process("p0", CONFIG, names=names, incarnation=2, store=copied)
    await copy.peers.start()
    copy.peers.set_address("p1", addresses[0])
    await reached(lambda: bool(copy.failures))
    assert "it lacks 10 links that the connected process" in str(copy.failures[0])
    await copy.peers.close()
    await goes_on(original, one, two)


async def test_a_start_whose_clock_is_behind_learns_the_number_of_the_newest_start() -> None:
    """Start a process whose clock is behind.

    No process of its name is connected, and no peer has accepted this start. So it is not a copy of a running
    process.
    """
    other, first = Process("p1", CONFIG), Process("p0", CONFIG, incarnation=2000)
    addresses = await start(other, first)
    first.commit([("p1", first.links_for("p1", 10))])
    await reached(lambda: len(other.received) == 10)
    await first.peers.close()
    late = Process("p0", CONFIG, incarnation=1000)
    await late.peers.start()
    late.peers.set_address("p1", addresses[0])
    late.commit([("p1", late.links_for("p1", 12))])
    await reached(lambda: bool(late.newer))
    assert late.newer[0] == 2000 and not late.failures
    late.common.identity = msgspec.structs.replace(late.common.identity, incarnation=2001)
    await reached(lambda: len(other.received) == 22)
    assert not late.failures
    for process in (other, late):
        await process.peers.close()


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (lambda: Process("p1", CONFIG, secret=b"another secret here"), "secret"),
        (lambda: Process("p1", CONFIG, secret=b"0123456789abcdef", crawl="another"), "crawl"),
    ],
)
async def test_a_process_that_does_not_match_is_refused_and_logged(
    other: Callable[[], Process], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, logger="crawler"):
        p0, p1 = Process("p0", CONFIG, secret=b"0123456789abcdef"), other()
        await start(p0, p1)
        p0.commit([("p1", p0.links_for("p1", 10))])
        await reached(lambda: p0.peers.last_ending.get("p1", "").startswith(reason))
        await asyncio.gather(p0.peers.close(), p1.peers.close())
        assert p0.outbox.links == 10
        assert p1.received == []
    assert any(record.levelno == logging.ERROR and reason in record.message for record in caplog.records)


async def test_tls_refuses_a_certificate_of_another_authority(authority: Path) -> None:
    p0, p1 = Process("p0", with_tls(authority)), Process("p1", with_tls(authority, "other"))
    await start(p0, p1)
    p0.commit([("p1", p0.links_for("p1", 10))])
    await reached(lambda: "certificate" in p0.peers.last_ending.get("p1", "").lower())
    assert p0.outbox.links == 10 and p1.received == []
    await asyncio.gather(p0.peers.close(), p1.peers.close())


async def test_a_replaced_certificate_is_used_for_the_next_connection(
    authority: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A node may run longer than its certificate is valid. While only one file is replaced, the former files are used."""
    for name in ("ca.pem", "other.pem", "other.key"):
        shutil.copy(authority / name, tmp_path / name)
    p0, p1 = Process("p0", with_tls(authority)), Process("p1", with_tls(tmp_path, "other"))
    await start(p0, p1)
    p0.commit([("p1", p0.links_for("p1", 10))])
    await reached(lambda: "certificate" in p0.peers.last_ending.get("p1", "").lower())
    shutil.copy(authority / "node.pem", tmp_path / "other.pem")
    await reached(lambda: "the former files stay in use" in caplog.text)
    shutil.copy(authority / "node.key", tmp_path / "other.key")
    await reached(lambda: p0.outbox.links == 0)
    assert len(p1.received) == 10
    await asyncio.gather(p0.peers.close(), p1.peers.close())


@pytest.mark.parametrize("use_uvloop", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("mode", ["plain", "tls"])
def test_unidentified_clients_cannot_exceed_the_connection_limit(
    mode: str, use_uvloop: bool, authority: Path
) -> None:
    """A peer can connect although there are twenty silent clients, because the oldest client is disconnected."""

    async def main() -> None:
        config = with_tls(authority) if mode == "tls" else CONFIG
        p0, p1 = Process("p0", config), Process("p1", config)
        address, _ = await start(p0, p1)
        strangers = [await asyncio.open_connection(*address) for _ in range(20)]
        p1.commit([("p0", p1.links_for("p0", 10))])
        await reached(lambda: p1.outbox.links == 0)
        closed = 0
        for reader, _ in strangers[:10]:
            await asyncio.wait_for(reader.read(), 5)
            closed += 1
        assert closed == 10
        # the last 1 stands for the connection that p0 opened itself
        assert len(p0.peers._connections) <= 1 + 4 + 1
        for _, writer in strangers:
            writer.close()
        await asyncio.gather(p0.peers.close(), p1.peers.close())

    run(main, use_uvloop=use_uvloop)


@pytest.mark.parametrize("noise", [b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"\x00\x00\x00\x20" + b"x" * 40])
async def test_a_client_that_sends_noise_is_refused_and_disconnected(noise: bytes) -> None:
    p0 = Process("p0", CONFIG)
    host, port = await p0.peers.start()
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(noise)
    answer = await asyncio.wait_for(reader.read(), 5)
    assert b"protocol" in answer  # a Refuse frame with its reason
    writer.close()
    await p0.peers.close()


@pytest.mark.parametrize("use_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_a_failed_tls_handshake_leaves_nothing_behind(
    use_uvloop: bool, authority: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        p0 = Process("p0", with_tls(authority))
        host, port = await p0.peers.start()
        noted: list[str] = []
        note = p0.peers._strangers.note
        monkeypatch.setattr(
            p0.peers._strangers, "note", lambda text, now: noted.append(text) or note(text, now)
        )
        for number, noise in enumerate((b"", b"GET / HTTP/1.1\r\n\r\n"), 1):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(noise)
            if noise:
                await asyncio.wait_for(reader.read(), 5)
            writer.close()
            await reached(lambda: len(noted) == number)  # noqa: B023
            await reached(lambda: len(p0.peers._doorkeeper) == 0)
        await p0.peers.close()

    run(main, use_uvloop=use_uvloop)


@pytest.mark.parametrize("use_uvloop", [False, True], ids=["asyncio", "uvloop"])
def test_closing_during_an_accept_terminates(use_uvloop: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An accepted connection is closed before its transport is created."""

    async def main() -> None:
        p0 = Process("p0", CONFIG)
        host, port = await p0.peers.start()
        enter = p0.peers._doorkeeper.enter

        def enter_and_be_closed(session: Listener) -> None:
            enter(session)
            for task in p0.peers._tasks:
                task.cancel()

        monkeypatch.setattr(p0.peers._doorkeeper, "enter", enter_and_be_closed)
        reader, writer = await asyncio.open_connection(host, port)
        assert await asyncio.wait_for(reader.read(), 5) == b""
        await asyncio.wait_for(p0.peers.close(), 5)
        assert not p0.peers._connections and not len(p0.peers._doorkeeper)
        writer.close()

    run(main, use_uvloop=use_uvloop)


async def test_a_connection_arriving_during_close_leaks_no_socket() -> None:
    """Cancel the task that accepts connections in the turn in which a connection arrives.

    A `sock_accept` that is cancelled in the turn in which it completes would lose the accepted socket.
    """
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        p0 = Process("p0", CONFIG)
        (address,) = await start(p0)
        await asyncio.sleep(0)  # now, p0 waits for connections
        # the connection is in the queue of the kernel; the event loop has not seen it yet
        with socket.create_connection(address):
            for task in p0.peers._tasks:
                # the cancellation runs after the events of the selector
                asyncio.get_running_loop().call_later(0.0, task.cancel)
            await asyncio.sleep(0.0)
            await asyncio.sleep(0.0)
            await p0.peers.close()
        gc.collect()
    assert not [each for each in caught if each.category is ResourceWarning]


async def test_a_replaced_connection_is_closed_at_once() -> None:
    """When a process dials again, its old connection is closed immediately, before the next heartbeat."""
    config = msgspec.structs.replace(CONFIG, heartbeat=1000, backoff_min=1000, backoff_max=1000)
    p0, p1 = Process("p0", config), Process("p1", config)
    p0.peers.set_address("p1", await p1.peers.start())
    await p0.peers.start()
    await reached(lambda: p0.peers.status()["p1"].connected)
    again = asyncio.create_task(p0.peers._attempt("p1"))
    await reached(lambda: "closed by the peer" in p0.peers.last_ending.get("p1", ""))
    assert p0.peers.status()["p1"].connected
    await asyncio.gather(p0.peers.close(), p1.peers.close())
    await again


async def test_an_unreachable_peer_costs_one_attempt_per_backoff() -> None:
    """If no process listens at a peer's address, this process continues, and the links for the peer wait."""
    p0 = Process("p0", CONFIG)
    await p0.peers.start()
    p0.commit([("p1", p0.links_for("p1", 10))])
    await reached(lambda: "cannot connect" in p0.peers.last_ending.get("p1", ""))
    assert p0.outbox.links == 10
    await p0.peers.close()


async def test_a_peer_is_not_dialled_before_its_port_is_known() -> None:
    """The supervisor of several processes tells them their ports only after all of them listen."""
    p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
    p0.peers._addresses["p1"] = ("127.0.0.1", 0)
    await p0.peers.start()
    address = await p1.peers.start()
    await asyncio.sleep(0)
    p0.peers.set_address("p1", address)
    await reached(lambda: p0.peers.status()["p1"].connected)
    assert not p0.peers.last_ending, "there was no attempt that failed"
    await p0.peers.close()
    await p1.peers.close()


async def test_a_damaged_outbox_is_a_failure_of_the_process() -> None:
    p0, p1 = Process("p0", CONFIG), Process("p1", CONFIG)
    p0.commit([("p1", p0.links_for("p1", 10))])
    ((key, entry),) = p0.store.scan(b"o/", b"o0")
    p0.store._data[key] = entry[:-1] + b"\xff\xff"
    await start(p0, p1)
    await reached(lambda: bool(p0.failures))
    assert isinstance(p0.failures[0], DamageError)
    await asyncio.gather(p0.peers.close(), p1.peers.close())


@pytest.mark.parametrize(
    "limits",
    [
        {"frame_bytes_max": 2 << 20},
        {"frame_bytes_max": 20_000},
        {"window_bytes": 8000},
        {"entry_bytes": 1 << 20},
    ],
)
def test_contradictory_limits_are_a_config_error(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="bytes"):
        check_limits(SplitterConfig(**limits))


def test_without_a_secret_only_loopback_addresses_are_allowed() -> None:
    for host in ("0.0.0.0", "[::]", "10.0.0.1", "example.org"):
        with pytest.raises(ConfigError, match="secret_file"):
            listen_address(SplitterConfig(listen=f"{host}:0"), b"")
        assert listen_address(SplitterConfig(listen=f"{host}:7"), b"secret")[1] == 7
    for host in ("127.0.0.1", "127.9.9.9", "[::1]", "localhost"):
        assert is_loopback(listen_address(SplitterConfig(listen=f"{host}:0"), b"")[0])


def test_addresses_and_peers_are_read() -> None:
    assert host_port("[::1]:80") == ("::1", 80)
    assert named_addresses(("a=h:1", "b-1=[::1]:2")) == {"a": ("h", 1), "b-1": ("::1", 2)}
    for text in ("h", "h:", "h:x", "h:65536", "h:١"):
        with pytest.raises(ConfigError):
            host_port(text)
    for peers in (("a",), ("a=h:1", "a=h:2"), ("=h:1",), ("a b=h:1",)):
        with pytest.raises(ConfigError):
            named_addresses(peers)


async def test_an_address_in_use_is_a_config_error() -> None:
    p0 = Process("p0", CONFIG)
    host, port = await p0.peers.start()
    p1 = Process("p1", SplitterConfig(listen=f"{host}:{port}"))
    with pytest.raises(ConfigError, match="listen"):
        await p1.peers.start()
    await asyncio.gather(p0.peers.close(), p1.peers.close())


def test_tls_files_must_be_readable(tmp_path: Path, authority: Path) -> None:
    assert tls_contexts(SplitterConfig()) == (None, None)
    missing = str(tmp_path / "none.pem")
    with pytest.raises(ConfigError, match="none.pem"):
        tls_contexts(SplitterConfig(tls_key=missing, tls_certificate=missing, tls_authority=missing))
    listening, dialling = tls_contexts(with_tls(authority))
    assert listening is not None and dialling is not None
    assert listening.verify_mode == dialling.verify_mode == ssl.CERT_REQUIRED
    assert dialling.check_hostname


def test_unidentified_clients_are_logged_once_a_minute() -> None:
    """The first unidentified client is logged immediately. Clients in the minute after that are only counted."""
    strangers = Strangers()
    said = [strangers.note("no magic", float(now)) for now in range(1000, 1200)]
    assert [line for line in said if line] == [
        "unidentified client: no magic",
        "60 unidentified clients, the last: no magic",
        "60 unidentified clients, the last: no magic",
        "60 unidentified clients, the last: no magic",
    ]


async def test_a_commit_pumps_only_the_affected_connections() -> None:
    """Groups are committed several times per second, so the cost must not grow with the number of connections."""

    class Connection:
        def __init__(self, peer: str) -> None:
            self.session, self.pumps = SimpleNamespace(peer=peer), 0

        def pump(self) -> None:
            self.pumps += 1

    peers = Process("p0", CONFIG).peers
    there = [Connection(peer) for peer in ("p1", "p2", "p1", "")]
    peers._connections = dict.fromkeys(there)
    peers.flush({"p1": None})
    assert [each.pumps for each in there] == [1, 0, 1, 0]


async def test_a_process_without_descriptors_for_connections_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It once waited for its peers without end, and they waited for it."""

    class Full:
        def accept(self) -> None:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async def at_once(_: object) -> None:
        pass

    monkeypatch.setattr(peers_module, "readable", at_once)
    process = Process("p0", msgspec.structs.replace(CONFIG, handshake_timeout=0.02, heartbeat=0.005))
    accepting = asyncio.ensure_future(process.peers._accept(Full()))
    await reached(lambda: bool(process.failures))
    accepting.cancel()
    assert isinstance(process.failures[0], StoreError)
    assert str(process.failures[0]) == "no connection to other processes can be made: Too many open files"


def test_a_short_lack_of_descriptors_does_not_count() -> None:
    shortage = peers_module.Shortage(10.0)
    assert not shortage.lasts(0.0) and not shortage.lasts(9.0)
    shortage.end()
    assert not shortage.lasts(11.0) and shortage.lasts(21.0)
