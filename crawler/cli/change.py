"""`crawler seed`, `block`, `unblock`, `retire`: changing a crawl, running or at rest."""

import argparse
from typing import Any

from crawler.cli import access, options
from crawler.errors import UsageError

_TEXTS = {
    "seed": ("Add seeds.", "URL", "crawler seed https://example.org/new/ --dir example"),
    "block": ("Ask nothing more of a host.", "HOST", "crawler block slow.example.org --dir example"),
    "unblock": ("Take a host up again.", "HOST", "crawler unblock slow.example.org --dir example"),
    "retire": (
        "Drop the to-do URLs that match a regular expression.",
        "REGEX",
        r"crawler retire '/calendar/' --dir example",
    ),
}


def main(command: str, argv: list[str]) -> int:
    """Run one of the four commands and say what it did."""
    description, metavar, example = _TEXTS[command]
    parser = options.parser(command, description, example)
    parser.add_argument("arguments", nargs="+" if command == "seed" else 1, metavar=metavar, type=options.url)
    args = parser.parse_args(argv)
    request = _request(command, args)
    # A seed goes from one process to its owner; the other commands are for whichever has the host.
    answers = [access.ask_first(args.dir, request)] if command == "seed" else access.ask(args.dir, request)
    print(_said(command, answers))
    return 0


def _request(command: str, args: argparse.Namespace) -> dict[str, Any]:
    if command == "seed":
        return {"command": command, "urls": args.arguments}
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
    if command == "retire":
        return f"{sum(answer['retired'] for answer in answers):,} URLs retired"
    return f"{answers[0]['host']}: {command}ed"
