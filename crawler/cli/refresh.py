"""`crawler refresh`: keep the stored pages of a crawl fresh, until stopped."""

import argparse

from crawler.cli import crawl, flags, options
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.seeds import Seeds


def main(_command: str, argv: list[str]) -> int:
    """Fetch known pages again in the order of their crawl value; return 0 when stopped on request."""
    args = _parse(argv)
    from crawler.cli import running  # imported here, so that `--help` is fast

    directory = CrawlDirectory(args.dir)
    directory.require()
    config = options.starting(options.layers(args, directory))
    running.run_and_tell(config, args, Seeds(config, ()))
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser(
        "refresh",
        "Fetch the stored pages of a crawl again, the most valuable refresh first, until stopped.\n"
        "Change rates and the reliability of change signals are learned from the results. New links are followed, too.",
        "crawler refresh --dir example --rate 0.5 --max-time '1 h'",
        settings=True,
    )
    groups = flags.grouped(parser)
    flags.add_config_flags(groups, "refresh")
    crawl.add_output_flags(groups)
    args = parser.parse_args(argv)
    setattr(args, "refresh.endless", True)
    args.prog = "refresh"
    return args
