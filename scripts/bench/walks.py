"""Lead operators through crawls at random (`tests/faults/walk.py`), and print each broken promise.

    python scripts/bench/walks.py [--first 1] [--walks 100] [--steps 14] [--folder DIR] [--bug BUG | --planted]

A walk with broken promises leaves its folder, in which `story` lists the steps. The script fails if a promise
was broken. `--bug` plants a bug of `tests/faults/planted.py` in all walks. `--planted` plants each bug of
`tests/faults/walk_hazards.py`, and fails if at most `--walks` walks do not find a bug.
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
from tests.faults.walk_hazards import PLANTED, make


def problems_of(folder: Path, seed: int, steps: int, bug: str) -> list[str]:
    """Make one walk, and return its broken promises."""
    begun = time.monotonic()
    try:
        problems = make(folder, seed, steps, bug).problems
    except Exception as error:  # a walk that fails must not end the others
        problems = ["".join(traceback.format_exception(error))]
    took = time.monotonic() - begun
    print(f"walk {seed}: {took:.1f} s, load {os.getloadavg()[0]:.1f}, problems: {len(problems)}", flush=True)
    for each in problems[:8]:
        print("   ", each[-1000:], flush=True)
    if not problems:
        shutil.rmtree(folder)
    return problems


def find_planted(folder: Path, seeds: range, steps: int) -> int:
    """Return the number of planted bugs that no walk finds."""
    missed = 0
    for bug in PLANTED:
        walks = 1
        while walks <= len(seeds) and not problems_of(folder / bug, seeds[walks - 1], steps, bug):
            walks += 1
        shutil.rmtree(folder / bug, ignore_errors=True)
        missed += walks > len(seeds)
        print(f"{bug}: " + (f"found by walk {walks}" if walks <= len(seeds) else "not found"), flush=True)
    return missed


def main() -> int:
    """Make the walks, and return the exit code."""
    parser = harness.parser(__doc__)
    parser.option("--first", 1, "seed of the first walk")
    parser.option("--walks", 100)
    parser.option("--steps", 14)
    parser.option("--bug", "", "a bug to plant")
    parser.add_argument("--planted", action="store_true", help="find all bugs of PLANTED")
    parser.option("--folder", Path, metavar="DIR")
    args = parser.parse_args()
    # a shell script that uses `&` starts programs with SIGINT ignored; the crawls would ignore it, too
    signal.signal(signal.SIGINT, signal.default_int_handler)
    folder = args.folder or Path(tempfile.mkdtemp(prefix="walks-"))
    seeds = range(args.first, args.first + args.walks)
    if args.planted:
        return 1 if find_planted(folder, seeds, args.steps) else 0
    broken = sum(bool(problems_of(folder / f"walk{seed}", seed, args.steps, args.bug)) for seed in seeds)
    print(f"{broken} of {args.walks} walks broke a promise")
    return 1 if broken else 0


if __name__ == "__main__":
    raise SystemExit(main())
