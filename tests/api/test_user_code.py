"""Test that the user's code, which may block, leaves turns to the event loop, and is not called long after a stop."""

import asyncio
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.api import delivery
from crawler.process.fetching import fetch_slots
from crawler.process.lifecycle.limits import STOP_GRACE
from tests.end_to_end.web import SETTINGS, Web, page

STEPS = 2  # number of times that the callback yields; each step to the next yield is a call of user code
NAMES = [f"/{number}" for number in range(12)]
ROUTES = {"/": page(*NAMES)} | {name: page(text=name) for name in NAMES}


@pytest.fixture
def web() -> Iterator[Web]:
    with Web(ROUTES) as web:
        yield web


@pytest.fixture
def no_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop leaves no time to user code."""
    monkeypatch.setattr(fetch_slots, "USER_GRACE", 0.0)


class Hook:
    """User code that is called with something, and stops the crawl at the call number `stop_at`."""

    def __init__(self, stop_at: int = 0, **stop: float) -> None:
        self.calls: list[str] = []
        self.turns: list[int] = []
        self.turn = 0
        self._stop_at, self._stop = stop_at, stop
        self.crawl: crawler.Crawl | None = None

    def __call__(self, given: Any) -> Any:
        self.calls.append(given if isinstance(given, str) else given.url)
        self.turns.append(self.turn)
        if len(self.calls) == self._stop_at and self.crawl is not None:
            self.crawl.stop(**self._stop)
        return [] if self.crawl is None else True

    async def tick(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    async def run(self, **arguments: Any) -> crawler.Crawl:
        """Crawl with this hook. The time that user code may use in a turn is over after each call."""
        async with crawler.Crawl(**arguments) as crawl:
            self.crawl = crawl
            crawl.process.user_turns._seconds = 0.0
            ticking = asyncio.create_task(self.tick())
            await crawl.run()
            ticking.cancel()
        return crawl


def sinks(hook: Hook) -> dict[str, Any]:
    return {"page_sink": hook}


def callbacks(hook: Hook) -> dict[str, Any]:
    def parse(page: crawler.Page) -> Iterator[Any]:
        for _ in range(STEPS):
            yield hook(page) and {"url": page.url}

    return {"parse": parse, "items": "items.jsonl"}


def extractors(hook: Hook) -> dict[str, Any]:
    return {"link_extractor": lambda page: hook(page) and page.urls()}


def filters(hook: Hook) -> dict[str, Any]:
    return {"url_filter": hook}


@pytest.mark.parametrize(("kind", "steps"), [(sinks, 1), (callbacks, STEPS), (filters, 1)])
async def test_calls_that_block_have_a_turn_each(
    kind: Any, steps: int, tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tests/process/fetching/test_reader.py` tests link extractors, because the pages of a host are read in turn."""
    monkeypatch.chdir(tmp_path)
    hook = Hook()
    await hook.run(config=SETTINGS, directory=tmp_path / "c", seeds=web.url("/"), **kind(hook))
    assert sorted(hook.calls) == sorted([*{*hook.calls}] * steps) and len(hook.calls) == 13 * steps
    assert len(set(hook.turns)) == len(hook.turns)


@pytest.mark.parametrize("kind", [sinks, callbacks, extractors, filters])
async def test_a_stop_ends_the_calls_and_the_next_run_makes_the_rest(
    kind: Any, tmp_path: Path, web: Web, no_grace: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = {"config": SETTINGS, "directory": tmp_path / "c", "seeds": web.url("/")}
    first, then = Hook(stop_at=3), Hook()
    crawl = await first.run(**arguments, **kind(first))
    assert crawl.report["stopped_by"] == "stopped" and 3 <= len(first.calls) <= 8
    await then.run(**arguments, **kind(then))
    wanted = {web.url(name) for name in (NAMES if kind is filters else ["/", *NAMES])}
    assert {*first.calls, *then.calls} - {web.url("/robots.txt")} == wanted
    assert sorted({*web.paths()}) == sorted(ROUTES)


async def test_a_filter_that_is_slower_than_a_run_goes_on_where_the_last_run_ended(
    tmp_path: Path, web: Web, no_grace: None
) -> None:
    """Each run ends after a few links of the first page. Each link is judged once, and its verdict holds."""
    calls: list[str] = []
    for _ in range(len(NAMES)):
        hook = Hook(stop_at=3)
        crawl = await hook.run(
            config=SETTINGS, directory=tmp_path / "c", seeds=web.url("/"),
            url_filter=lambda url, hook=hook: hook(url) and not url.endswith("/1"),
        )  # fmt: skip
        calls += hook.calls
        if crawl.report["stopped_by"] == "done":
            break
    assert Counter(calls) - Counter([web.url("/robots.txt")]) == dict.fromkeys(map(web.url, NAMES), 1)
    assert sorted({*web.paths()}) == sorted({*ROUTES} - {"/1"})
    assert web.paths().count("/") >= 3


KILLED = """
import asyncio, os, signal, sys
import crawler
from crawler.process.fetching import fetch_tasks

url, folder, kill_at = sys.argv[1], sys.argv[2], int(sys.argv[3])
fetch_tasks.VERDICTS_INTERVAL = 0.0
calls = 0

def accepts(url):
    global calls
    calls += 1
    if calls == kill_at:
        os.kill(os.getpid(), signal.SIGKILL)
    return url.endswith("0")

async def main():
    settings = {"network": {"allow_networks": ["127.0.0.0/8"]}, "politeness": {"delay": 0, "delay_factor": 0}}
    settings |= {"admin": {"address": "off"}}
    async with crawler.Crawl(settings, directory=folder, seeds=url, url_filter=accepts) as crawl:
        turns = crawl.process.user_turns
        turns._seconds, mine = 0.0, turns.mine

        async def mine_after_commits(what):
            await mine(what)
            if calls % 50 == 0:
                assert await crawl.process.commits.kept()

        turns.mine = mine_after_commits
        await crawl.run()
    print(calls)

asyncio.run(main())
"""


def test_a_kill_costs_few_verdicts(tmp_path: Path) -> None:
    """A run that was killed once stored no verdicts.

    Each call of the filter has a turn of the loop of its own. After every fifty calls, the queued verdicts become
    durable before the next call.
    """
    links, kill_at = [f"/{n}" for n in range(400)], 350
    file = tmp_path / "program.py"
    file.write_text(KILLED)
    with Web({"/": page(*links), **{path: page() for path in links}}) as web:

        def run(kill_at: int) -> "subprocess.CompletedProcess[str]":
            words = [sys.executable, str(file), web.url(), str(tmp_path / "c"), str(kill_at)]
            environ = {**os.environ, "PYTHONPATH": str(Path(crawler.__file__).parents[1])}
            return subprocess.run(words, env=environ, capture_output=True, text=True, check=False)

        assert run(kill_at).returncode == -signal.SIGKILL
        ended = run(0)
        assert ended.returncode == 0, ended
        stored = 1 + len(links) - int(ended.stdout)  # the filter judges the seed and each link
        assert stored >= kill_at - 51, "the verdicts since the last commit are lost"
        assert web.paths().count("/10") == 1 and not web.paths().count("/11")


async def test_a_longer_grace_period_holds_for_the_users_code_too(
    tmp_path: Path, web: Web, no_grace: None
) -> None:
    """The filter judges the other links of the page after the stop."""
    hook = Hook(stop_at=3, grace=STOP_GRACE + 60)
    await hook.run(config=SETTINGS, directory=tmp_path / "c", seeds=web.url("/"), **filters(hook))
    assert {*map(web.url, NAMES)} <= {*hook.calls}


async def test_a_limit_of_pages_passes_on_all_its_pages(tmp_path: Path, web: Web, no_grace: None) -> None:
    """A sink that runs when the limit is reached may end. So the stop leaves no page to the next run."""
    taken = []

    async def sink(page: crawler.Page) -> None:
        for _ in range(20):
            await asyncio.sleep(0.001)
        taken.append(page.url)

    settings = SETTINGS | {"crawl": SETTINGS["crawl"] | {"max_pages": 8}}
    arguments = {"directory": tmp_path / "c", "seeds": web.url("/"), "page_sink": sink}
    crawl = await Hook().run(config=settings, **arguments)
    assert crawl.report["stopped_by"] == "max_pages" and len(taken) == 8


async def test_pages_of_an_earlier_run_are_handed_over_within_the_time_limit(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages whose sink raised wait for the next run, which has no time for them."""

    def fails(_: crawler.Page) -> None:
        raise ValueError

    arguments = {"directory": tmp_path / "c", "seeds": web.url("/")}
    await Hook().run(config=SETTINGS, page_sink=fails, **arguments)
    monkeypatch.setattr(delivery, "is_over", lambda _: len(hook.calls) >= 2)
    hook = Hook()
    await hook.run(config=SETTINGS, page_sink=hook, **arguments)
    assert len(hook.calls) == 2
