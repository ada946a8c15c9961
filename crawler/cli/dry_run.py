"""`crawler crawl --dry-run`: print the URLs that would be fetched, and keep nothing.

    new directory      fetches the seeds and their robots.txt in a temporary folder; prints their links
    existing crawl     fetches nothing; prints the URLs in its queues

URLs go to standard output, one per line; everything else goes to standard error.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from crawler.admin.report import WHY_HINT
from crawler.cli import options, running
from crawler.cli.access import names, reading
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.seeds import Seeds
from crawler.errors import NoSeedError
from crawler.signing.key_file import with_key_file
from crawler.wording import several, words

SHOWN_RULES = 8  # the number of rules listed; the rules that reject most URLs come first


def dry_run(config: Config, directory: CrawlDirectory, args: argparse.Namespace, given: Iterable[str]) -> int:
    """Print the URLs that would be fetched; `given` are the seeds of the command line."""
    options.set_up_log(args)
    if directory.exists():
        return _go_on(directory, given)
    alone = replace(config.crawl, depth=0, processes=1)
    pages = replace(config.pages, store="none")
    admin = replace(config.admin, address="off")
    serve = replace(config.serve, address="", bot_listen="")
    once = replace(config, crawl=alone, pages=pages, admin=admin, serve=serve)
    once = with_key_file(once, directory.path.absolute())
    with tempfile.TemporaryDirectory(prefix="crawler-dry-") as name:
        folder = Path(name)
        CrawlDirectory(folder).create()
        beside = argparse.Namespace(**vars(args) | {"dir": folder, "progress": "none"})
        try:
            report = running.run(once, beside, Seeds(once, given))
        except NoSeedError as error:
            _say(str(error).removesuffix(WHY_HINT))
            return NoSeedError.exit_code
        asked = [msgspec.json.decode(line) for line in (folder / "pages.jsonl").read_bytes().splitlines()]
        next_ones = sorted(_waiting(CrawlDirectory(folder)), key=lambda each: each[1])
    for line in asked:
        print(line["url"])
    for _, url in next_ones:
        print(url)
    rejected = sorted(report["urls"].get("filtered", {}).items(), key=lambda each: -each[1])[:SHOWN_RULES]
    _say(
        f"{len(asked):,} fetched now, {len(next_ones):,} would be fetched next{_limits(config)}; nothing is kept"
    )
    if rejected:
        _say("links not followed: " + ", ".join(f"{words(name)} {n:,}" for name, n in rejected))
    if config.crawl.depth == 0:
        _say("--depth 0: links of the seeds would be parked, not fetched")
    return 0


def _go_on(directory: CrawlDirectory, given: Iterable[str]) -> int:
    new = list(given)
    count = parked = 0
    for is_parked, url in _waiting(directory):
        parked += is_parked
        if not is_parked:
            count += 1
            print(url)
    for url in new:
        print(url)
    seeds = f", {several(len(new), 'seed')} if new" if new else ""
    _say(
        f"{several(count, 'URL')} would be fetched next{seeds}, then their links; parked: {parked:,}; nothing was fetched"
    )
    return 0


def _waiting(directory: CrawlDirectory) -> Iterator[tuple[bool, str]]:
    """Yield (is parked, URL) for each queued URL, host by host, in queue order."""
    for name in names(directory):
        with reading(directory, name) as stages:
            yield from stages.frontier.intake.waiting()


def _limits(config: Config) -> str:
    limits = [
        f"{name.replace('_', '-')} {getattr(config.crawl, name):g}"
        for name in ("max_pages", "max_time", "max_bytes")
        if getattr(config.crawl, name)
    ]
    return f" (of this run at most: {', '.join(limits)})" if limits else ""


def _say(text: str) -> None:
    print(f"crawler: {text}", file=sys.stderr)
