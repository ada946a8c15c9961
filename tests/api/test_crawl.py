"""Test which crawl directories `crawler.Crawl` opens."""

import asyncio
from pathlib import Path

import pytest

import crawler
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import CrawlerError
from crawler.storage.engines import open_store


def test_a_crawl_of_several_processes_is_not_opened_as_one(tmp_path: Path) -> None:
    """The other processes have pages and links that this one would miss."""
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create()
    for name in ("p0", "p1"):
        directory.process(name).mkdir()
        open_store(directory.process(name) / "store").close()
        directory.note_state(name, 0)
    directory.settings.save(convert({"crawl": {"processes": 2}}))
    before = directory.settings.file.read_bytes()

    async def begin() -> None:
        async with crawler.Crawl({"crawl": {"processes": 1}}, directory=directory.path):
            pass

    with pytest.raises(CrawlerError, match="reshard"):
        asyncio.run(begin())
    assert directory.settings.file.read_bytes() == before
