"""Entry point of `crawler` and `python -m crawler`. Handles signals before anything else is imported."""

import sys

from crawler import early_signals


def main() -> int:
    """Run the command line and return its exit code."""
    early_signals.install()
    try:
        from crawler import cli

        return cli.main()
    except KeyboardInterrupt:  # during the imports
        return early_signals.AT_ONCE


if __name__ == "__main__":
    sys.exit(main())
