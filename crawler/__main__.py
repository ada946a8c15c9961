"""`python -m crawler` is the `crawler` command."""

from crawler.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
