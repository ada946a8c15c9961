"""`crawler key`: make, rotate or show the key that signs requests (Web Bot Auth)."""

import argparse
import os
from pathlib import Path

from crawler.cli import options
from crawler.cli.parsing import quoted
from crawler.clock import SystemClock, iso_time
from crawler.errors import UsageError
from crawler.signing.key_directory import PATH, directory_body
from crawler.signing.key_file import NAME, read_keys, write_keys
from crawler.signing.signing_keys import PRIVATE_BYTES, Keys, SigningKey, published, rotated, signing

_EXAMPLES = """\
crawler key new --dir example
  crawler crawl https://example.org/ --dir example --set identity.signature=dictionary \\
      --set identity.signature_agent=https://bot.example.net --set serve.bot_listen=127.0.0.1:8082
  crawler key rotate --dir example
  crawler key show --dir example --json > http-message-signatures-directory"""


def main(_command: str, argv: list[str]) -> int:
    """Make, rotate or show keys."""
    parser = options.parser(
        "key",
        "Make, rotate or show the key by which sites can tell this crawler from impostors (Web Bot Auth).\n"
        "`new` makes an Ed25519 key that only its owner may read. `rotate` adds a key, which signs from a day later on,\n"
        "when sites have seen it; with --now it replaces all others at once. A running crawl notices it by itself.\n"
        "`show` prints the public keys; with --json, the key directory as sites fetch it.",
        _EXAMPLES,
    )
    parser.add_argument("action", choices=("new", "rotate", "show"), help="what to do")
    parser.option("--file", Path, f"key file (DIR/{NAME})")
    parser.option("--now", False, "rotate: drop the former keys at once, because others may know them")
    parser.option("--json", False, "show: print the key directory")
    args = parser.parse_args(argv)
    if args.now and args.action != "rotate":
        raise UsageError("--now belongs to `crawler key rotate`")
    if args.json and args.action != "show":
        raise UsageError("--json belongs to `crawler key show`")
    path = args.file or args.dir / NAME
    now = SystemClock().now()
    keys = _new(path, now) if args.action == "new" else read_keys(path)
    if args.action == "rotate":
        keys = rotated(keys, os.urandom(PRIVATE_BYTES), now, at_once=args.now)
        write_keys(path, keys)
    _show(keys, now, args)
    return 0


def _new(path: Path, now: float) -> Keys:
    if path.exists():
        raise UsageError(f"{path} exists; `crawler key rotate` replaces its key without a gap")
    keys = (SigningKey(os.urandom(PRIVATE_BYTES), now),)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path.parent}: {error.strerror}") from None
    write_keys(path, keys)
    return keys


def _show(keys: Keys, now: float, args: argparse.Namespace) -> None:
    if args.json:
        print(directory_body(keys, now).decode())
        return
    current = signing(keys, now)
    for key in published(keys, now):
        if key is current:
            state = "signs"
        elif key.begins > now:
            state = f"signs from {iso_time(key.begins)} on"
        else:
            state = f"published until {iso_time(key.ends)}"
        print(f"{key.id}  {state}")
    if not args.quiet and args.action != "show":
        where = f"--file {quoted(args.file)}" if args.file else f"--dir {quoted(args.dir)}"
        print(f"public keys, to be served at {PATH}: crawler key show --json {where}")
