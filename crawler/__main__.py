"""`crawler` and `python -m crawler`: signals are noted before anything else is imported."""

import sys

from crawler import early


def main() -> int:
    """Run the command line and return its exit code."""
    early.note()
    try:
        from crawler import cli

        return cli.main()
    except KeyboardInterrupt:  # in the imports
        return early.AT_ONCE


if __name__ == "__main__":
    sys.exit(main())
