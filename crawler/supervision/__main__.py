"""`python -m crawler.supervision FD`: a child that is started again, as a program of its own."""

import sys

from crawler import early_signals

if __name__ == "__main__":
    early_signals.install()
    from crawler.supervision.child import main

    sys.exit(main(sys.argv[1:]))
