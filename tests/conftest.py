"""Settings of all tests: hypothesis without deadlines (the machine may be busy), tests in random order.

`CRAWLER_TEST_ORDER=SEED` repeats an order, `CRAWLER_TEST_ORDER=file` keeps that of the files; the header tells the seed.
"""

import gc
import os
import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("crawler", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("crawler")

# Crawls that tests start on the command line open no dashboard: its default port is one for the whole machine.
os.environ.setdefault("CRAWLER_ADMIN__ADDRESS", "off")

ORDER = os.environ.get("CRAWLER_TEST_ORDER") or str(random.SystemRandom().randrange(10**6))
os.environ["CRAWLER_TEST_ORDER"] = ORDER  # the workers of pytest-xdist must collect in the same order


def pytest_report_header() -> str:
    return f"order of tests: {ORDER}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle the files, and the tests within each: what one leaves behind must not help another.

    Module fixtures stay cheap, as the tests of a file stay together.
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


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Report which tests were skipped because a program is missing."""
    from tests.browser.chromium import PROGRAM

    if PROGRAM is None:
        terminalreporter.write_line(
            "left out: tests/browser (no chromium here; Debian's package chromium has it)"
        )


@pytest.fixture(autouse=True)
def _collected(request: pytest.FixtureRequest) -> Iterator[None]:
    """Collect garbage after a test that listens, so that a socket it left open is reported as its error."""
    yield
    if request.node.nodeid.startswith(LISTENS):
        gc.collect()


LISTENS = ("tests/browser/", "tests/serve/", "tests/admin/", "tests/end_to_end/test_live.py")
