"""How a command reaches a crawl: through the control socket of a running process, else on the directory itself."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawler.directory import CrawlDirectory


def ask(path: Path, request: dict[str, Any]) -> list[Any]:
    """Put one request to every process of the crawl in `path`; the answers in the order of the processes."""
    directory = CrawlDirectory(path)
    directory.require()
    return [_ask_one(directory, name, request) for name in directory.process_names()]


def _ask_one(directory: CrawlDirectory, name: str, request: dict[str, Any]) -> Any:
    from crawler.admin.control import NOBODY, ask

    answer = ask(directory.process(name), **request)
    if answer is not NOBODY:
        return answer
    from crawler.commands import Commands

    with at_rest(directory, name) as stages:
        return Commands(stages, stages.commit_now).run(request)


@contextlib.contextmanager
def at_rest(directory: CrawlDirectory, name: str, *, restore: bool = True) -> Iterator[Any]:
    """The stages of one process of a crawl that is not running, under its lock; `restore` as for `Stages`."""
    from msgspec.structs import replace

    from crawler.clock import SystemClock
    from crawler.config import convert
    from crawler.stages import Stages

    config = convert(directory.saved_config())
    config = replace(config, crawl=replace(config.crawl, trace=False))  # nothing is crawled here
    folder, seed = directory.process(name), directory.seed()
    stages = Stages(config, folder, seed, clock=SystemClock(), name=name, restore=restore)
    clean = False
    try:
        yield stages
        clean = True
    finally:
        stages.close(clean=clean)
