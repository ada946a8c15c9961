"""The command-line options for the format of pictures: PNG with a resolution, or PDF for print."""

import argparse

from crawler.cli.parsing import OptionParser

FORMATS = ("png", "pdf")
# pixels per inch: the default, for screens, and the maximum, which limits the memory
DPI, DPI_MAX = 130, 1200


def add_arguments(parser: OptionParser) -> None:
    """Add `--format` and `--dpi`."""
    parser.option("--format", FORMATS[0], "form of the pictures (png)", choices=FORMATS)
    parser.option("--dpi", DPI, f"pixels per inch of a PNG ({DPI}; print: 300)", metavar="N", type=_dpi)


def _dpi(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 10 <= int(text) <= DPI_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 10 to {DPI_MAX}")
    return int(text)
