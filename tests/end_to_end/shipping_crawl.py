"""Run the crawler's command line, but ship finished segments after half a second instead of ten seconds."""

import sys

from crawler.cli import main
from crawler.crawl import shipper

if __name__ == "__main__":
    shipper.SETTLED_AGE = 0.5
    sys.exit(main(sys.argv[1:]))
