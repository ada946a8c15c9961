"""Run the splitter's benchmark alone: python scripts/bench/splitter.py --links 1e6."""

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

from crawler.bench import splitter

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(splitter.__doc__ or "").split("\n")[0])
    splitter.add_arguments(parser)
    sys.exit(splitter.run(parser.parse_args()))
