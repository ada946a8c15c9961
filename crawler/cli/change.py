"""`crawler seed`, `signal`, `block`, `unblock`, `retire`, `set`: change a crawl, running or not.

`pause` and `resume` need a running crawl.
"""

import argparse
import json
from typing import Any, get_args

from crawler.admin.said import said
from crawler.change_signals import NAMES, SIGNAL_SOURCES
from crawler.cli import access, options
from crawler.config.schema import RenderWhen
from crawler.crawl import rendered_parts, safe_settings
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import UsageError
from crawler.upgrade.ready import opened
from crawler.urls.canonical import SCHEME, UNPARSABLE

_TEXTS = {
    "seed": (
        "Add seeds to a crawl, running or not.",
        "URL",
        "crawler seed https://example.org/new/ --dir example",
    ),
    "signal": (
        "Report that pages have changed. They are fetched again sooner if earlier signals of this source were right.",
        "URL",
        "crawler signal https://example.org/news/ --dir example",
    ),
    "block": ("Stop fetching from a host.", "HOST", "crawler block slow.example.org --dir example"),
    "unblock": ("Fetch from a blocked host again.", "HOST", "crawler unblock slow.example.org --dir example"),
    "retire": (
        "Permanently drop waiting and parked URLs that match a regular expression.\n"
        "Stored pages are kept, served and refreshed as before; `crawler withdraw` takes them down.",
        "REGEX",
        r"crawler retire '/calendar/' --dir example",
    ),
    "pause": (
        "Start no new fetches until `crawler resume`; fetches in flight are completed.",
        "",
        "crawler pause --dir example",
    ),
    "resume": ("Continue a paused crawl.", "", "crawler resume --dir example"),
    "stop": ("Stop a running crawl cleanly, as Ctrl-C does.", "", "crawler stop --wait --dir example"),
    "set": (
        "Change settings of a running crawl and save them in crawl.toml. These can be changed:\n"
        f"{', '.join((*safe_settings.LIVE, safe_settings.LOG_LEVEL))}.",
        "KEY=VALUE",
        "crawler set politeness.delay=5 crawl.rate=20 --dir example",
    ),
}
_RUNNING = ("pause", "resume", "stop")


def main(command: str, argv: list[str]) -> int:
    """Run one of the commands and print what it did."""
    description, metavar, example = _TEXTS[command]
    parser = options.parser(command, description, example)
    if metavar:
        nargs = "+" if command in ("seed", "set", "signal") else 1
        parser.add_argument("arguments", nargs=nargs, metavar=metavar, type=options.url)
    if command == "seed":
        options.add_set(parser)
        parser.option(
            "--render",
            str,
            "whether a browser shows the pages under these seeds, as the column `render` of a seeds file says it",
            choices=get_args(RenderWhen),
        )
    if command == "signal":
        recipes = "; ".join(f"{each.name}: {each.recipe}" for each in SIGNAL_SOURCES)
        parser.add_argument(
            "--source",
            choices=NAMES,
            default="signal",
            help=f"source of the signal; each source is trusted according to its past precision. {recipes}",
        )
        parser.option("--json", False, "print JSON, with the result for each URL")
    if command == "stop":
        parser.option("--wait", False, "return when all of its processes have ended")
    args = parser.parse_args(argv)
    if command == "set":
        return _set(args)
    if command in _RUNNING:
        try:
            access.ask_running(args.dir, {"command": command})
        except access.NotRunningError as error:
            if command != "stop":
                raise
            if args.wait:  # a process that has ended its work may still hold a lock
                access.wait_for_end(args.dir)
            print(error)  # not an error, because this is the state that was asked for
            return 0
        if command == "stop" and args.wait:
            access.wait_for_end(args.dir)
        print("stopped" if command == "stop" and args.wait else said({"command": command}, []))
        return 0
    request = _request(command, args)
    if command == "seed" and args.render is not None:
        request = _parted(args, request)
    # Seeds and signals go to one process, which forwards them to their owners; other commands go to every
    # process.
    routed = command in ("seed", "signal")
    answers = [access.ask_first(args.dir, request)] if routed else access.ask(args.dir, request)
    print(json.dumps(answers[0], indent=2) if command == "signal" and args.json else said(request, answers))
    if command == "seed" and (peers := _on_other_disks(args, answers[0]["waits_for"])):
        print(
            f"stored only here until {', '.join(peers)} has received them (`crawler status` shows what waits)"
        )
    return UsageError.exit_code if routed and _is_wrong(answers[0]) else 0


def _on_other_disks(args: argparse.Namespace, peers: list[str]) -> list[str]:
    """Return those peers whose folders are not in the directory of the crawl."""
    return [peer for peer in peers if peer not in CrawlDirectory(args.dir).process_names()]


def _is_wrong(answer: dict[str, Any]) -> bool:
    """Return whether a seed was refused, or an argument of `signal` is not a URL."""
    if "waits_for" in answer:
        return bool(answer["refused"])
    return not answer["why"].keys().isdisjoint((SCHEME, UNPARSABLE))


def _parted(args: argparse.Namespace, request: dict[str, Any]) -> dict[str, Any]:
    """Apply the part of a `seed` request that says which pages a browser renders; return the rest of the request."""
    directory = opened(args.dir)
    scope = directory.settings.config().crawl.scope
    settings, rest = rendered_parts.separated(request | {"render": args.render}, scope)
    _apply(args, directory, settings)
    return rest


def _apply(args: argparse.Namespace, directory: CrawlDirectory, wanted: dict[str, str]) -> bool:
    """Change settings of the crawl and save them; return whether it is running."""
    safe_settings.changed(directory.settings.config(), wanted)
    running = access.is_running(args.dir)
    if not running and safe_settings.LOG_LEVEL in wanted:
        raise UsageError(
            f"{safe_settings.LOG_LEVEL}: the crawl is not running, and the log level is not saved; start it with -v or -q"
        )
    if running:
        access.ask_running(args.dir, {"command": "set", "settings": wanted})
    safe_settings.record(directory, wanted)
    return running


def _set(args: argparse.Namespace) -> int:
    """Change settings of a running crawl, or of the next run if none is running."""
    directory, wanted = opened(args.dir), safe_settings.parse(args.arguments)
    running = _apply(args, directory, wanted)
    done = said({"command": "set", "settings": wanted}, [])
    print(done if running else f"{done} from the next run on")
    return 0


def _request(command: str, args: argparse.Namespace) -> dict[str, Any]:
    if command == "seed":
        return {"command": command, "urls": args.arguments, "settings": safe_settings.parse(args.set)}
    if command == "signal":
        return {"command": command, "urls": args.arguments, "source": args.source}
    if command == "retire":
        return {"command": command, "pattern": args.arguments[0]}
    return {"command": command, "host": args.arguments[0]}
