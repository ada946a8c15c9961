"""`crawler demo`: run the whole crawler on a small built-in web.

The demo takes less than a minute. First, the demo crawls its small web completely. One of its sites, `app`,
is a shop whose pages are built by a script: without a browser, the crawl gets only its first page. Then news
and prices change, and the crawl keeps its copies fresh for `REFRESH_SECONDS`. The web is part of the demo, so
its server knows the current version of every page and counts the stored copies that are current.
"""

import argparse
import math
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from crawler.cli import options
from crawler.cli.parsing import quoted
from crawler.config import Config, Layers
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.restart import rename_to_numbered
from crawler.wording import several

SETTINGS: dict[str, Any] = {
    "crawl": {"scope": "any", "depth": 12, "patience": 10.0, "concurrency": 16},
    "politeness": {"delay": 0.05, "delay_factor": 1.0, "address_delay_share": 0.0, "backoff_first": 1.0},
    "network": {"allow_networks": ["127.0.0.0/27"]},
    "due": {"max_wait": 0.5},
    "render": {"when": "auto", "chance": 0.0},
}
WITHOUT_BROWSER = (
    "no browser: the shop `app`, which needs JavaScript, shows only its first page; "
    "on Debian: apt-get install chromium-headless-shell"
)

STATIC: dict[str, Any] = {"render": {"when": "never"}}
REFRESH_SECONDS = 12.0
REFRESH: dict[str, Any] = {
    "crawl": {"max_time": REFRESH_SECONDS, "rate": 25.0},
    "refresh": {"endless": True, "min_age": 0.0, "speed": 86_400},  # one second counts as one day of page age
}


def main(_command: str, argv: list[str]) -> int:
    """Crawl the demonstration web; print what was fetched and where it is stored."""
    parser = options.parser(
        "demo",
        "Crawl a small built-in web of six hosts on loopback, then keep the copies fresh while the pages change.",
        "crawler demo",
        settings=True,
        folder="crawl-demo",
    )
    parser.option("--progress", "auto", "progress display", choices=("auto", "plain", "none"))
    args = parser.parse_args(argv)
    directory = CrawlDirectory(args.dir)
    aside = rename_to_numbered(directory)
    directory.create()
    options.set_up_log(args, directory.log_file)

    if aside is not None and not args.quiet:
        print(f"the earlier crawl in {args.dir} was moved to {aside.name}")

    import uvloop

    uvloop.run(_demo(args))
    return 0


def _config(args: argparse.Namespace, *more: dict[str, Any]) -> Config:
    layers = Layers()
    for tree in (SETTINGS, *more):
        layers.add("demo", tree)
    for path, value in options.layers(args).tree.items():
        layers.add("user", {path: value})
    return layers.config()


async def _demo(args: argparse.Namespace) -> None:
    """Crawl the web and print the result. Then keep the copies fresh, and print that result."""
    from crawler.cli.demo_web import HOSTS, DemoWeb
    from crawler.cli.summary import summary

    async with DemoWeb() as demo_web:
        hosts = ", ".join(f"{name} {address}" for name, address in HOSTS.items())
        # unlike this line, progress goes to stderr
        print(f"a small web on port {demo_web.port}: {hosts}", flush=True)
        config = _config(args)
        renders = _renders(config)
        report = await _crawl(config if renders else _config(args, STATIC), args, demo_web.seeds())
        print(summary(report, args.dir), flush=True)
        if shown := report["rendered"].get("pages", 0) if "rendered" in report else 0:
            print(
                f"shown in a browser without network: {several(shown, 'page')} of the shop `app`", flush=True
            )
        if report["stopped_by"] != "done":
            return
        print(
            "\nthe shop's prices and the news change all the time; "
            f"`crawler refresh` keeps the copies current, for {REFRESH_SECONDS:.0f} s:",
            flush=True,
        )
        report = await _crawl(_config(args, REFRESH, *(() if renders else (STATIC,))), args, [])
        print(_refreshed(report, *demo_web.current()))
        app = demo_web.url("app", "/tea/Oolong") if shown else ""
        print(_closing(args.dir, demo_web.url("manual", "/chapter1/"), app))


def _renders(config: Config) -> bool:
    """Return whether a browser is installed, which shows the pages of the demo's shop; if none is, print a line."""
    from crawler.render.browser import find_program
    from crawler.render.protocol import BrowserError

    if config.render.when == "never":
        return False
    try:
        find_program(config.render.browser)
    except BrowserError:
        print(WITHOUT_BROWSER, flush=True)
        return False
    return True


async def _crawl(config: Config, args: argparse.Namespace, seeds: list[str]) -> dict[str, Any]:
    from crawler.api import Crawl
    from crawler.cli.progress import shown

    mode = "none" if args.quiet else args.progress
    async with Crawl(config, directory=args.dir, seeds=seeds) as crawl, shown(crawl, mode):
        return await crawl.run()


def _refreshed(report: dict[str, Any], current: int, changing: int, changes: int) -> str:
    """Return the results of the refreshes, and the share of current copies: as estimated and as counted by the web.

    By chance, the count differs from the estimate by more than the stated error in one demo of twenty. The estimate
    is also a little too low: after these few seconds, the crawl cannot know that most pages never change.
    """
    asked, kept = report["run"].get("refresh", {}), report["refreshing"]
    estimated, counted = kept["expected_freshness"] or 0.0, 1.0 - (changing - current) / (kept["pages"] or 1)
    chance = 2.0 * math.sqrt(estimated * (1.0 - estimated) / (kept["pages"] or 1))
    return (
        f"{several(asked.get('done', 0), 'page')} fetched again, {asked.get('content_changed', 0):,} of them had "
        f"changed; of {several(kept['pages'], 'copy')}, the crawl expects {estimated:.0%} "
        f"+- {chance:.0%} to be current\n"
        f"checked against the web: {several(changing, 'page')} changed {changes:,} times, and {counted:.0%} of the "
        "copies are current"
    )


def _activation() -> tuple[str, ...]:
    """Return the command that makes `crawler` known to the shell; nothing if the shell knows it."""
    script = Path(sys.prefix, "bin", "activate")
    if shutil.which("crawler") or not script.is_file():
        return ()
    return (f"  . {quoted(os.path.relpath(script))}",)


def _closing(directory: Path, url: str, rendered: str) -> str:
    """Return commands to try on the crawl; `rendered` is the URL of a page shown in a browser, or ""."""
    url, where = quoted(url), quoted(directory)
    static = f"  crawler get {rendered} --dir {where}    # and with --static, the answer without a browser"
    return "\n".join(
        [
            "",
            "Now try:",
            *_activation(),
            f"  crawler status --dir {where}",
            f"  crawler why {url} --dir {where}",
            f"  crawler get {url} --dir {where} --headers",
            f"  crawler export --dir {where} --format cdxj",
            *((static,) if rendered else ()),
        ]
    )
