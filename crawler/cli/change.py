"""`crawler seed`, `signal`, `block`, `unblock`, `retire`, `set`: changing a crawl.

`pause`, `resume` and `stop` need a running crawl.
"""

import argparse
from typing import Any

from crawler.cli import access, options
from crawler.config import convert
from crawler.crawl import safe_settings
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import UsageError

_TEXTS = {
    "seed": ("Add seeds.", "URL", "crawler seed https://example.org/new/ --dir example"),
    "signal": (
        "Say that pages have changed; they are asked again sooner if such signals have been right before.",
        "URL",
        "crawler signal https://example.org/news/ --dir example",
    ),
    "block": ("Ask nothing more of a host.", "HOST", "crawler block slow.example.org --dir example"),
    "unblock": ("Take a host up again.", "HOST", "crawler unblock slow.example.org --dir example"),
    "retire": (
        "Drop the to-do URLs that match a regular expression.",
        "REGEX",
        r"crawler retire '/calendar/' --dir example",
    ),
    "pause": (
        "Start no fetch until `crawler resume`; what is in flight ends.",
        "",
        "crawler pause --dir example",
    ),
    "resume": ("Go on after `crawler pause`.", "", "crawler resume --dir example"),
    "stop": ("End a running crawl in order, as Ctrl-C does.", "", "crawler stop --dir example"),
    "set": (
        "Change settings of a running crawl, kept in crawl.toml: "
        f"{', '.join((*safe_settings.LIVE, safe_settings.LOG_LEVEL))}.",
        "KEY=VALUE",
        "crawler set politeness.delay=5 crawl.rate=20 --dir example",
    ),
}
_SOURCES = ("sitemap", "feed", "indexnow", "websub", "signal", "headers", "listing")
_RUNNING = ("pause", "resume", "stop")


def main(command: str, argv: list[str]) -> int:
    """Run one of the commands and say what it did."""
    description, metavar, example = _TEXTS[command]
    parser = options.parser(command, description, example)
    if metavar:
        nargs = "+" if command in ("seed", "set", "signal") else 1
        parser.add_argument("arguments", nargs=nargs, metavar=metavar, type=options.url)
    if command == "signal":
        parser.add_argument(
            "--source", choices=_SOURCES, default="signal", help="who says so: quality is learned by source"
        )
    args = parser.parse_args(argv)
    if command == "set":
        return _set(args)
    if command in _RUNNING:
        access.ask_running(args.dir, {"command": command})
        print({"pause": "paused", "resume": "going on", "stop": "stopping"}[command])
        return 0
    request = _request(command, args)
    # A seed goes from one process to its owner; the other commands are for whichever has the host.
    answers = [access.ask_first(args.dir, request)] if command == "seed" else access.ask(args.dir, request)
    print(_said(command, answers))
    return 0


def _set(args: argparse.Namespace) -> int:
    """Change a running crawl, or only what the next run begins with."""
    directory = CrawlDirectory(args.dir)
    directory.require()
    wanted = safe_settings.parse(args.arguments)
    safe_settings.changed(convert(directory.saved_config()), wanted)
    running = access.is_running(args.dir)
    if running:
        access.ask_running(args.dir, {"command": "set", "settings": wanted})
    safe_settings.record(directory, wanted)
    said = ", ".join(f"{key} = {value}" for key, value in wanted.items())
    print(said if running else f"{said} from the next run on")
    return 0


def _request(command: str, args: argparse.Namespace) -> dict[str, Any]:
    if command == "seed":
        return {"command": command, "urls": args.arguments, "settings": safe_settings.parse(args.set)}
    if command == "signal":
        return {"command": command, "urls": args.arguments, "source": args.source}
    if command == "retire":
        import re

        try:
            re.compile(args.arguments[0])
        except re.error as error:
            raise UsageError(f"retire {args.arguments[0]!r}: not a regular expression: {error}") from error
        return {"command": command, "pattern": args.arguments[0]}
    return {"command": command, "host": args.arguments[0]}


def _said(command: str, answers: list[Any]) -> str:
    if command == "seed":
        refused = answers[0]["refused"]
        return "\n".join(
            [f"{answers[0]['queued']} queued", *(f"refused, no http(s) URL: {url}" for url in refused)]
        )
    if command == "signal":
        sums = {name: sum(answer[name] for answer in answers) for name in answers[0]}
        return ", ".join(
            f"{sums[name]:,} {text}"
            for name, text in (
                ("noted", "noted"),
                ("links", "new, queued"),
                ("not_refreshed", "known, but not refreshed here"),
                ("refused", "refused"),
            )
            if sums[name] or name == "noted"
        )
    if command == "retire":
        return f"{sum(answer['retired'] for answer in answers):,} URLs retired"
    return f"{answers[0]['host']}: {command}ed"
