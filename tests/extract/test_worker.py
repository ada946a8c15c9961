"""Test the parser worker: expensive pages end within their limits, and no child outlives its parent."""

import asyncio
import contextlib
import io
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvloop

import crawler
from crawler.config import ByteCount, ExtractConfig, Seconds
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.extract.parser_child import LENGTH, Job, limits_of, serve
from crawler.extract.worker import PARSED_FACTOR, SCANNED_FACTOR, Worker
from crawler.process.fetching.reader import fork_parser
from crawler.records import Extracted
from tests.extract.test_parser_guard import ORDINARY, SHAPES

PAGE = Context("http://h.example/dir/page", token="me")
CONFIG = ExtractConfig(cpu_seconds_max=Seconds(0.3))
NEEDS_TREE = b"<table><p></table>"  # the scanner leaves this page to the parser
LARGE = NEEDS_TREE + ORDINARY * 15_000
SCANNED = b"<a href=first>x</a>"
LINK = NEEDS_TREE + SCANNED
WITH_ANCHORS = Context("http://h.example/dir/page", token="me", want_anchors=True)


async def _closing(worker: Worker, *contents: bytes) -> list[Extracted]:
    try:
        return list(await asyncio.gather(*(worker.extract(content, PAGE) for content in contents)))
    finally:
        await worker.close()


@pytest.mark.parametrize("name", ["formatting", "nested div", "attributes"])
async def test_known_expensive_pages(name: str) -> None:
    """Parsing ends within the limit. The page is then marked, and a plain scan finds its links."""
    worker = Worker(CONFIG)
    (found,) = await _closing(worker, LINK + SHAPES[name][0])
    assert found.parse_limit and found.hrefs == ["first"]
    assert worker.deaths == 0


class Holds:
    """Records each change of the amount of memory that is held."""

    def __init__(self) -> None:
        self.told: list[int] = []

    def hold_more(self, owner: object, nbytes: int) -> None:
        self.told.append(nbytes)

    def let_go(self, owner: object) -> None:
        self.told.append(0)


async def test_the_memory_of_parsing_is_accounted_for() -> None:
    """For a very large page, no more memory is charged than the child may use."""
    memory = ByteCount(64 << 20)
    worker = Worker(ExtractConfig(inline_bytes_max=ByteCount(1000), worker_memory_bytes_max=memory))
    worker.holding = holds = Holds()
    pages = LINK + b" " * 100_000, LINK + b" " * 5_000_000
    await _closing(worker, LINK, *pages)
    assert holds.told == [PARSED_FACTOR * len(pages[0]), 0, memory, 0]


def _children_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def test_a_page_that_takes_too_much_cpu() -> None:
    """Without the limit this page would take some 40 s."""
    before = _children_cpu()
    deep = LINK + b"<div>" * 100_000 + b"</div>" * 100_000
    config_lets_it_through = ExtractConfig(cpu_seconds_max=Seconds(0.2), depth_max=10**9)
    worker = Worker(config_lets_it_through)
    found, after = await _closing(worker, deep, LARGE)
    assert found.parse_limit and found.hrefs == ["first"]
    assert worker.deaths == 1 and worker.starts == 2
    # this takes 0.2 s of parsing and the time to start two processes
    assert _children_cpu() - before < 3.0
    assert not after.parse_limit and after.hrefs == ["x"]


@pytest.mark.parametrize("forked", [False, True])
async def test_a_page_that_takes_too_much_memory(forked: bool) -> None:
    """A fork can reuse memory that its parent freed, so this page needs more than all other tests have freed."""
    fork = fork_parser() if forked else None  # inherited memory does not count towards the limit
    assert (fork is not None) == forked

    memory = ByteCount(96 << 20)
    config = ExtractConfig(worker_memory_bytes_max=memory, inline_bytes_max=ByteCount(1000), tags_max=10**7)
    worker = Worker(config, fork)
    found, after = await _closing(worker, LINK + b"<p>x" * 4_000_000, ORDINARY * 100)
    assert found.parse_limit and found.hrefs == ["first"]
    assert worker.deaths == 1 and after.hrefs == ["x"]


async def test_large_pages_give_the_same_result_as_in_the_loop() -> None:
    worker = Worker(CONFIG)
    links = b"".join(b"<a href='/%d?a&amp;b'>x</a><code class=k>y</code>" % number for number in range(5000))
    wanted = {"want_requisites": True, "want_anchors": True}
    page = Context("http://h/", "utf-8", "me", ("</n>; rel=next",), "", ("noindex",), **wanted)
    content = b"<title>t</title><img src=i>" + links
    found = await worker.extract(content, page)
    await worker.close()
    assert found == extract_page(content, page, CONFIG)
    assert len(found.hrefs) == 5001 and worker.starts == 1


async def test_small_pages_start_no_process() -> None:
    worker = Worker(CONFIG)
    (found,) = await _closing(worker, ORDINARY)
    assert found.hrefs == ["x"] and worker.starts == 0 and "starts=0" in repr(worker)


@pytest.mark.parametrize(
    ("begin", "page", "factor", "starts"),
    [
        (SCANNED, PAGE, SCANNED_FACTOR, 0),
        (SCANNED, PAGE, SCANNED_FACTOR + 1, 1),
        (SCANNED, WITH_ANCHORS, SCANNED_FACTOR, 1),
        (LINK, PAGE, SCANNED_FACTOR, 1),
    ],
)
async def test_pages_that_are_scanned_may_be_larger(
    begin: bytes, page: Context, factor: int, starts: int
) -> None:
    size = 10_000
    worker = Worker(ExtractConfig(inline_bytes_max=ByteCount(size)))
    content = begin.ljust(factor * size)
    found = await worker.extract(content, page)
    await worker.close()
    assert found == extract_page(content, page, CONFIG) and worker.starts == starts


async def test_a_fork_is_the_first_child_and_a_program_the_next() -> None:
    fork = fork_parser()
    assert fork is not None

    # a program takes longer on a busy machine
    worker = Worker(ExtractConfig(cpu_seconds_max=Seconds(30.0)), fork)
    found = await worker.extract(LINK + LARGE, PAGE)
    assert found == extract_page(LINK + LARGE, PAGE, CONFIG)
    assert worker._child is not None and worker._child.process is fork
    fork.kill()
    lost = await worker.extract(LARGE, PAGE)
    found = await worker.extract(LARGE, PAGE)
    await worker.close()
    assert lost.parse_limit and not found.parse_limit and worker.starts == 2
    assert fork.returncode == -signal.SIGKILL


def test_an_unused_fork_ends_with_the_worker() -> None:
    fork = fork_parser()
    assert fork is not None
    asyncio.run(_closing(Worker(CONFIG, fork), ORDINARY))
    assert fork.returncode is not None


def test_a_fork_ends_when_its_parent_is_gone() -> None:
    fork = fork_parser()
    assert fork is not None
    fork.link.close()  # the kernel also closes the connection if the parent is killed
    assert asyncio.run(fork.wait()) == 0


async def test_the_queue_is_bounded() -> None:
    """Pages beyond the queue's limit get a plain scan at once."""
    worker = Worker(ExtractConfig(worker_queue_max=2))
    found = await _closing(worker, *[LINK + LARGE] * 6)
    assert [page.parse_limit for page in found] == [False, False, False, True, True, True]
    assert worker.refused == 3
    assert all(page.hrefs == ["first", "x"] for page in found)


def test_a_child_that_ends_before_its_first_page_costs_no_links(monkeypatch: pytest.MonkeyPatch) -> None:
    """uvloop raises an error of its own type when the parent writes to the closed pipe of the child."""
    start = Worker._start

    async def killed(worker: Worker) -> Any:
        child = await start(worker)
        child.process.kill()
        await child.process.wait()
        with contextlib.suppress(RuntimeError):
            while True:  # wait until the event loop has noticed the end of the child
                child.writer.write(b"x")
                await asyncio.sleep(0)
        return child

    async def check() -> None:
        worker = Worker(CONFIG)
        monkeypatch.setattr(Worker, "_start", killed)
        found = await worker.extract_apart(LINK, PAGE)
        assert (found.hrefs, found.parse_limit, worker.deaths) == (["first"], True, 1)
        await worker.close()

    uvloop.run(asyncio.wait_for(check(), 60))


async def test_a_killed_child_is_replaced() -> None:
    """The page that finds the child dead may get a plain scan, unless the end of the child was known before."""
    worker = Worker(CONFIG)
    await worker.extract(LARGE, PAGE)
    assert worker._child is not None
    worker._child.process.kill()
    found = [await worker.extract(LARGE, PAGE) for _ in range(2)]
    assert found[1].hrefs == ["x"] and not found[1].parse_limit
    assert worker.starts == 2
    deaths = worker.deaths
    worker._child.process.kill()
    await worker._child.process.wait()
    (known,) = await _closing(worker, LARGE)
    assert known.hrefs == ["x"] and not known.parse_limit
    assert (worker.starts, worker.deaths) == (3, deaths)


async def test_a_cancelled_page_leaves_no_answer_behind() -> None:
    worker = Worker(CONFIG)
    task = asyncio.create_task(worker.extract(LINK + LARGE, PAGE))
    while worker._child is None:
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    (found,) = await _closing(worker, LARGE)
    assert found.hrefs == ["x"]


async def test_a_child_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = Worker(CONFIG)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    (found,) = await _closing(worker, LINK + LARGE)
    assert found.parse_limit and found.hrefs == ["first", "x"] and worker.deaths == 1


def test_the_child_ends_with_its_input() -> None:
    """If the parent is killed, the child notices that its input is closed."""
    root = Path(crawler.__file__).parent.parent
    child = subprocess.Popen(
        [sys.executable, "-m", "crawler.extract.parser_child"], cwd=root, stdin=subprocess.PIPE
    )
    assert child.stdin is not None
    child.stdin.write(limits_of(CONFIG) + b"\0\0")  # an incomplete frame
    child.stdin.close()
    assert child.wait(30) == 0


def test_complete_frames_are_answered() -> None:
    """The loop of the child answers complete frames, and ends at an incomplete frame. No process is started."""
    request = msgspec.msgpack.encode(Job(PAGE, LINK))
    answers = io.BytesIO()
    serve(io.BytesIO((LENGTH.pack(len(request)) + request) * 2 + b"\0"), answers, CONFIG)
    answers.seek(0)
    for _ in range(2):
        (length,) = LENGTH.unpack(answers.read(LENGTH.size))
        assert msgspec.msgpack.decode(answers.read(length), type=Extracted).hrefs == ["first"]
    assert answers.read() == b""
