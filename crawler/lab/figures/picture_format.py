"""The command-line options for the format of pictures: PNG with a resolution, or PDF for print."""

import argparse

FORMATS = ("png", "pdf")
# pixels per inch: the default, for screens, and the maximum, which limits the memory
DPI, DPI_MAX = 130, 1200


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add `--format` and `--dpi`."""
    parser.add_argument("--format", choices=FORMATS, default=FORMATS[0], help="form of the pictures (png)")
    parser.add_argument(
        "--dpi", type=_dpi, default=DPI, metavar="N", help=f"pixels per inch of a PNG ({DPI}; print: 300)"
    )


def _dpi(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 10 <= int(text) <= DPI_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 10 to {DPI_MAX}")
    return int(text)
