"""`crawler demo`: the whole crawler on a small web of its own, in under a minute."""

import argparse
import asyncio
from pathlib import Path
from typing import Any

from crawler.cli import options
from crawler.config import Config, Layers
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.fresh import put_aside

SETTINGS: dict[str, Any] = {
    "crawl": {"scope": "any", "depth": 12, "patience": 10.0, "concurrency": 16},
    "politeness": {"delay": 0.05, "delay_factor": 1.0, "address_delay_share": 0.0, "backoff_first": 1.0},
    "network": {"allow_networks": ["127.0.0.0/28"]},
    "due": {"max_wait": 0.5},
}


def main(_command: str, argv: list[str]) -> int:
    """Crawl the demonstration web and say what was fetched and where it lies."""
    parser = options.parser(
        "demo", "Crawl a small web on loopback, five hosts with the habits of the real one.", "crawler demo"
    )
    parser.set_defaults(dir=Path("crawl-demo"))
    parser.add_argument(
        "--progress", choices=("auto", "plain", "none"), default="auto", help="progress display"
    )
    args = parser.parse_args(argv)
    directory = CrawlDirectory(args.dir)
    aside = put_aside(directory)
    directory.create()
    options.set_up_log(args, directory.log_file)

    if aside is not None and not args.quiet:
        print(f"the crawl that was in {args.dir} is {aside.name} now")

    import uvloop

    report = uvloop.run(_demo(_config(args), args))
    print(_closing(report, args.dir))
    return 0


def _config(args: argparse.Namespace) -> Config:
    layers = Layers()
    layers.add("demo", SETTINGS)
    for path, value in options.layers(args).tree.items():
        layers.add("user", {path: value})
    return layers.config()


async def _demo(config: Config, args: argparse.Namespace) -> dict[str, Any]:
    from crawler.api import Crawl
    from crawler.cli.demo_web import HOSTS, DemoWeb
    from crawler.cli.progress import show

    async with DemoWeb() as demo_web:
        hosts = ", ".join(f"{name} {address}" for name, address in HOSTS.items())
        print(f"a small web on port {demo_web.port}: {hosts}")
        async with Crawl(config, directory=args.dir, seeds=demo_web.seeds()) as crawl:
            shown = asyncio.create_task(show(crawl, "none" if args.quiet else args.progress))
            try:
                report = await crawl.run()
            finally:
                shown.cancel()
            return report | {"demo_url": demo_web.url("manual", "/chapter1/")}


def _closing(report: dict[str, Any], directory: Path) -> str:
    from crawler.cli.crawl import summary
    from crawler.cli.parsing import quoted

    url, where = quoted(report["demo_url"]), quoted(directory)
    return "\n".join(
        [
            summary(report, directory),
            "",
            "Now try:",
            f"  crawler status --dir {where}",
            f"  crawler why {url} --dir {where}",
            f"  crawler get {url} --dir {where} --headers",
            f"  crawler export --dir {where} --format cdxj",
        ]
    )
