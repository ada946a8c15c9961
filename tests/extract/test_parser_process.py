"""Test the parser for callers that block.

The parser gives the same results as in the crawl, even if children die or never start.
"""

import asyncio
import gc
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import ExtractConfig, Seconds
from crawler.extract import links
from crawler.extract.collected import Context
from crawler.extract.parser_process import ParserProcess
from crawler.extract.worker import Worker
from crawler.records import Extracted
from tests.extract.test_parser_guard import ORDINARY, SHAPES

PAGE = Context("http://h.example/dir/page", token="me")
CONFIG = ExtractConfig(cpu_seconds_max=Seconds(0.3))
LIGHT = (
    "formatting",
    "reopened, few",
    "options",
    "text",
    "small",
    "attributes",
)  # parsing one of these shapes takes far less than the CPU limit
MARKUP = [
    *(
        b"<title>",
        b"</title>",
        b"<title class=x>",
        b"a &amp; b",
        b"\xc3\xa9",
        b"<!-- x -->",
        b"<head>",
        b"</head>",
    ),
    *(
        b"<body>",
        b"<script>",
        b"</script>",
        b"<svg>",
        b"</svg>",
        b"<p>",
        b"<template>",
        b"</template>",
        b" ",
        b"text",
    ),
    *(
        b"<meta charset=utf-8>",
        b"<noscript>",
        b"</noscript>",
        b"<frameset>",
        b"<html>",
        b"<",
        b"&am",
        b"</titl",
    ),
]
LARGE = b"<title>Large</title><a href=first>x</a>" + ORDINARY * 15_000


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Return a list to which each started child is added."""
    started: list[subprocess.Popen[bytes]] = []

    class Noted(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **more)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Noted)
    return started


def _by_worker(content: bytes) -> Extracted:
    async def once() -> Extracted:
        worker = Worker(CONFIG)
        try:
            return await worker.extract(content, PAGE)
        finally:
            await worker.close()

    return asyncio.run(once())


@pytest.mark.parametrize("content", [b"<title>s</title><a href=x>", LARGE, *(SHAPES[n][0] for n in LIGHT)])
def test_parser_process_and_worker_find_the_same(content: bytes) -> None:
    parser = ParserProcess(CONFIG)
    try:
        assert parser.extract(content, PAGE) == _by_worker(content)
    finally:
        parser.close()


def test_careful_parsing_gives_the_same_result() -> None:
    parser = ParserProcess(CONFIG)
    page = b"<title>s</title><a href=x>"
    assert parser.extract(page, PAGE, careful=True) == parser.extract(page, PAGE)
    parser.close()


def test_a_killed_child_loses_the_parse_of_one_page(children: list[subprocess.Popen[bytes]]) -> None:
    parser = ParserProcess(CONFIG)
    assert not parser.extract(LARGE, PAGE).parse_limit
    children[0].kill()
    children[0].wait()
    found = parser.extract(LARGE, PAGE)
    assert found.parse_limit and found.title == "Large" and parser.deaths == 1
    assert not parser.extract(LARGE, PAGE).parse_limit
    parser.close()


def test_a_child_that_cannot_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    parser = ParserProcess(CONFIG)
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")
    found = parser.extract(LARGE, PAGE)
    assert found.parse_limit and "first" in found.hrefs and parser.deaths == 1


def test_the_child_ends_with_its_owner(children: list[subprocess.Popen[bytes]]) -> None:
    parser = ParserProcess(CONFIG)
    parser.extract(LARGE, PAGE)
    assert [child.poll() for child in children] == [None]
    del parser
    gc.collect()
    assert children[0].poll() is not None


@given(st.lists(st.sampled_from(MARKUP), max_size=12), st.integers(1, 60))
def test_the_title_read_alone_is_that_of_the_page(pieces: list[bytes], prefix: int) -> None:
    """For the title, only a prefix of the page is read. The prefix may end inside a tag, title, entity or character."""
    content = b"".join(pieces)
    parser = ParserProcess(CONFIG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(links, "TITLE_PREFIX_BYTES", prefix)
        assert parser.title(content, PAGE) == parser.extract(content, PAGE).title
