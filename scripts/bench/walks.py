"""Lead operators through crawls at random (`tests/faults/walk.py`), and print each broken promise.

    python scripts/bench/walks.py [--first 1] [--walks 100] [--steps 14] [--folder DIR] [--bug BUG]

Every second crawl has three processes, every third keeps its pages fresh, and every fifth of the others continues a
crawl of an earlier version. A walk with broken promises leaves its folder, in which `story` lists the steps.
The script fails if a promise was broken. `--bug` plants a bug of `tests/faults/planted.py`.
"""

import os
import shutil
import signal
import tempfile
import time
import traceback
from pathlib import Path

import programs  # noqa: F401

from crawler.bench import harness
from tests.faults.walk import walk
from tests.faults.walk_hazards import ALL
from tests.upgrade.support import FORMER


def problems_of(folder: Path, seed: int, steps: int, bug: str) -> list[str]:
    """Make one walk, and return its broken promises."""
    refreshes = seed % 3 == 2
    former = FORMER[seed // 5 % len(FORMER)] if seed % 5 == 0 and not refreshes else ""
    processes = (1, 3)[seed % 2]
    try:
        made = walk(folder, seed, steps, processes, refreshes=refreshes, weights=ALL, former=former, bug=bug)
        return made.problems
    except Exception as error:  # a walk that fails must not end the others
        return ["".join(traceback.format_exception(error))]


def main() -> int:
    """Make the walks, and return the exit code."""
    parser = harness.parser(__doc__)
    parser.option("--first", 1, "seed of the first walk")
    parser.option("--walks", 100)
    parser.option("--steps", 14)
    parser.option("--bug", "", "a bug to plant")
    parser.option("--folder", Path, metavar="DIR")
    args = parser.parse_args()
    # a shell script that uses `&` starts programs with SIGINT ignored; the crawls would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="walks-"))
    broken = 0
    for seed in range(args.first, args.first + args.walks):
        begun, here = time.monotonic(), folder / f"walk{seed}"
        problems = problems_of(here, seed, args.steps, args.bug)
        broken += bool(problems)
        took = time.monotonic() - begun
        print(
            f"walk {seed}: {took:.1f} s, load {os.getloadavg()[0]:.1f}, problems: {len(problems)}", flush=True
        )
        for each in problems[:8]:
            print("   ", each[-1000:], flush=True)
        if not problems:
            shutil.rmtree(here)
    print(f"{broken} of {args.walks} walks broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
