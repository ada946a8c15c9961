"""Test when a browser that does not start is tried again."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest

from crawler.config import RenderConfig
from crawler.errors import Unexpected
from crawler.records import Fetch, Outcome
from crawler.render import browser, rendering
from crawler.render.rendering import BrowserRenderer, StaticPage
from crawler.render.shared_answers import SharedAnswers

PAGE = StaticPage(Fetch("http://a.example/", Outcome.FETCHED), lambda *_: asyncio.Future())


@pytest.mark.parametrize(("program", "first", "starts"), [("/nowhere", 1, 1), ("/bin/false", 3, 1)])
def test_after_failed_starts_a_single_start_is_tried_at_intervals(
    program: str, first: int, starts: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """There is no browser, or the program ends at once. A failed start leaves no folder and no open file."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    now, tried = [0.0], []
    find = browser.find_program
    monkeypatch.setattr(browser, "find_program", lambda name: tried.append(name) or find(name))
    shared: SharedAnswers = None  # type: ignore[assignment]

    async def body() -> None:
        config = RenderConfig(browser=program, sandbox=False)
        renderer = BrowserRenderer(config, "ua", Unexpected(), shared, lambda: now[0])
        files = len(os.listdir("/proc/self/fd"))
        for count in (first, 0, starts, 0, starts):
            tried.clear()
            assert renderer.given_up == (count == 0)
            assert await renderer.render(PAGE) is None
            assert len(tried) == count and renderer.given_up
            assert not os.listdir(tmp_path) and len(os.listdir("/proc/self/fd")) == files
            now[0] += rendering._PAUSE if count == 0 else rendering._PAUSE / 2
        await renderer.close()

    asyncio.run(body())
