"""`python -m crawler.supervision FD`: run a restarted child as a separate program."""

import sys

from crawler import early_signals

if __name__ == "__main__":
    early_signals.install()
    from crawler.quick_exit import end
    from crawler.supervision.child import main

    code = main(sys.argv[1:])
    early_signals.leave()
    end(code)
    sys.exit(code)
