"""The settings of all tests. Hypothesis has no deadlines, as the machine may be busy. Tests run in random order.

`CRAWLER_TEST_ORDER=SEED` repeats an earlier order. With `CRAWLER_TEST_ORDER=file`, tests run in the order of
the files. The seed is printed in the header of a run.
"""

import asyncio
import gc
import inspect
import logging
import os
import random
import signal
import sys
from collections.abc import Generator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from tests import warm_start
from tests.waiting import WAIT_MAX

# The assertions of helper modules, such as `tests/faults/around.py`, also show their values when they fail.
pytest.register_assert_rewrite(*(f"tests.{folder.name}" for folder in Path(__file__).parent.iterdir()))

# Until the tests are collected, nearly all new objects are kept: modules, syntax trees, tests. Searching them
# for garbage would take a third of the CPU time that collecting the tests takes in a new clone.
# `pytest_collection_finish` enables the collector.
gc.disable()

# Properties without a number of their own are tried with 50 new examples in each run, instead of 100. With
# `--hypothesis-profile thorough`, they are tried with 1,000.
settings.register_profile(
    "crawler", deadline=None, max_examples=50, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("crawler"), max_examples=1000)
settings.load_profile("crawler")

# `nohup` and shell scripts that use `&` start programs with these signals ignored. Programs that tests start
# would ignore them, too. Handlers are not inherited, so a handler that does nothing is set here.
for _number in (signal.SIGHUP, signal.SIGINT):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)

if not os.environ.get("CRAWLER_TEST_COLD"):
    warm_start.install()

# Crawls that tests start on the command line open no dashboard, because all would use the same default port.
os.environ.setdefault("CRAWLER_ADMIN__ADDRESS", "off")
# The processes of a crawl agree on its end in two seconds by default. Hundreds of tests would wait for that.
os.environ.setdefault("CRAWLER_SPLITTER__HEARTBEAT", "0.2")

ORDER = os.environ.get("CRAWLER_TEST_ORDER") or str(random.SystemRandom().randrange(10**6))
os.environ["CRAWLER_TEST_ORDER"] = ORDER  # the workers of pytest-xdist must collect in the same order


def pytest_report_header() -> str:
    return f"order of tests: {ORDER}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests within each file, because no test may depend on state that another test left.

    The tests of a file stay together, so that fixtures with module scope are still created only once.
    """
    if ORDER == "file":
        return
    rng = random.Random(ORDER)
    by_file: dict[str, list[pytest.Item]] = {}
    for item in items:
        by_file.setdefault(item.nodeid.partition("::")[0], []).append(item)
    files = list(by_file.values())
    rng.shuffle(files)
    for tests in files:
        rng.shuffle(tests)
    items[:] = [item for tests in files for item in tests]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    """Restore the crawler's logger and the handlers of signals after each test, because commands change both."""
    log = logging.getLogger("crawler")
    handlers, propagates, level = [*log.handlers], log.propagate, log.level
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)}
    try:
        return (yield)
    finally:
        log.handlers, log.propagate = handlers, propagates
        log.setLevel(level)
        for number, handler in before.items():
            if handler is not None and signal.getsignal(number) is not handler:
                signal.signal(number, handler)
        _exempt_new_modules()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine function, for at most four times `WAIT_MAX`, on uvloop as the crawler does.

    Arguments with the attribute `runs_during_test` are asynchronous context managers, which are entered for the test.
    If a test fails, its loop stays open, because closing it would wait for the tasks that the test left behind.
    """
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}

    async def run() -> None:
        async with AsyncExitStack() as entered:
            for value in arguments.values():
                if hasattr(value, "runs_during_test"):
                    await entered.enter_async_context(value)
            await pyfuncitem.obj(**arguments)

    loop = uvloop.new_event_loop()
    loop.run_until_complete(asyncio.wait_for(run(), 4 * WAIT_MAX))
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.call_soon(loop.stop)
    loop.run_forever()
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()
    return True


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which tests were skipped because a program is missing."""
    from tests.browser.chromium import PROGRAM

    if PROGRAM is None:
        terminalreporter.write_line(
            "skipped: tests/browser (no browser is installed; Debian: apt-get install chromium-headless-shell)"
        )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Read data once for all forked workers. Exempt imported modules and collected tests from garbage collection.

    Each crawl in the process of the tests begins with a garbage collection, which would otherwise examine the
    modules and tests.

    A crawl in the process of the tests calls `gc.unfreeze` at its end, which would end the exemption. So both
    functions have no effect while tests run, except in programs that tests start.
    """
    if "crawler.cli" in sys.modules:
        _fork_no_helpers()
    if session.config.getoption("forked_workers", 0):
        warm_start.read_data()
    gc.collect()
    _exempt_new_modules()
    gc.freeze = gc.unfreeze = lambda: None
    gc.set_threshold(YOUNG_OBJECTS, 10, 10)
    gc.enable()


def _fork_no_helpers() -> None:
    """Let commands in the process of the tests fork no helpers, unless a test asks for several processes.

    A crawl forks a process for heavy pages before its event loop begins, and `check` forks one for each core.
    The process of the tests takes so much memory that a fork of it costs more than twice the CPU time of a
    small crawl. Without the fork, a crawl starts a program when the first heavy page comes. Programs that
    tests start fork as usual, and so does `fork_parser` in tests that have imported it by its name.
    """
    from crawler.export import worker_pool
    from crawler.process.fetching import reader

    reader.fork_parser = lambda: None
    worker_pool.processes = lambda: 1


_freeze = gc.freeze
_exempt = [0]  # number of modules that are exempt from garbage collection


def _exempt_new_modules() -> None:
    """Exempt all objects from garbage collection if many modules were imported since the last call."""
    if len(sys.modules) > _exempt[0] + NEW_MODULES:
        _freeze()
        _exempt[0] = len(sys.modules)


NEW_MODULES = 20
# A garbage collection after this many new objects, instead of 700, saves an eighth of the CPU time of tests
# that run in this process. Crawls set a threshold of their own.
YOUNG_OBJECTS = 10_000


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect garbage after a test that opens servers. Then an open socket fails this test and not a later one.

    No collection runs during the test, so all objects of the test are young at its end. The collection of young
    objects does not examine the thousands of older objects. If a test nevertheless runs a collection, older
    garbage may remain; a complete collection after the last test of the file finds it.
    """
    if not request.node.nodeid.startswith(LISTENS):
        yield
        return
    gc.disable()
    yield
    gc.collect(1)
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _collected_at_the_end(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if request.node.nodeid.startswith(LISTENS):
        gc.collect()


LISTENS = ("tests/browser/", "tests/serve/", "tests/admin/", "tests/end_to_end/test_live.py")
