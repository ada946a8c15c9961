"""`crawler config show | check`: print the configuration in force, or check a file."""

import argparse
from pathlib import Path

import msgspec

from crawler.cli import flags, options
from crawler.config import Config
from crawler.config.credentials import redacted
from crawler.crawl.directory import CrawlDirectory


def main(_command: str, argv: list[str]) -> int:
    """Print the configuration in force with the source of each value, or check a file."""
    parser = options.parser(
        "config",
        "Show the settings in force with the source of each, or check a file of settings.",
        "crawler config show --set crawl.depth=3\n  crawler config check own.toml",
        settings=True,
    )
    parser.add_argument("action", choices=("show", "check"), help="show the settings, or check FILE")
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="TOML file to check")
    flags.add_config_flags(flags.grouped(parser), "config")
    args = parser.parse_args(argv)
    return _check(args) if args.action == "check" else _show(args)


def _check(args: argparse.Namespace) -> int:
    """Check a file together with the flags and the environment, as `crawl --config FILE` reads them."""
    args.config = args.file or args.config
    options.starting(options.layers(args))
    print(f"{args.config or 'defaults'}: valid")
    return 0


def _show(args) -> int:
    layers = options.layers(args, CrawlDirectory(args.dir))
    config = redacted(layers.config())
    for section in msgspec.structs.fields(Config):
        value = getattr(config, section.name)
        if isinstance(value, msgspec.Struct):
            for field in msgspec.structs.fields(value):
                path = f"{section.name}.{field.name}"
                shown = getattr(value, field.name)
                print(f"{path} = {_shown(shown)}  # {layers.sources.get(path, 'default')}")
        elif value:
            print(f"{section.name} = {_shown(value)}  # {layers.sources.get(section.name, 'default')}")
    return 0


def _shown(value: object) -> str:
    plain = msgspec.to_builtins(value, enc_hook=lambda kind: kind + 0)
    return msgspec.json.encode(plain).decode()
