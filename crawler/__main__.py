"""Entry point of `crawler` and `python -m crawler`. Handles signals before anything else is imported."""

import os
import sys

from crawler import early_signals


def main() -> int:
    """Run the command line and return its exit code."""
    early_signals.install()
    _open_closed_streams()
    try:
        from crawler import cli
        from crawler.quick_exit import end

        code = cli.main()
    except KeyboardInterrupt:  # a signal arrived during the imports
        return early_signals.interrupted()
    end(code)
    return code


def _open_closed_streams() -> None:
    """Open the null device in place of each standard stream that the caller closed.

    Otherwise a file of the crawl would get the number of that stream, and errors of libraries would be written to it.
    """
    for number, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            opened = os.open(os.devnull, os.O_RDWR)
            if opened != number:
                os.dup2(opened, number)
                os.close(opened)
            setattr(sys, name, open(number, mode))  # noqa: SIM115  a descriptor cannot be opened by a path


if __name__ == "__main__":
    sys.exit(main())
