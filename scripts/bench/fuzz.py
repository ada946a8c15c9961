"""Feed mutated heads, bodies, pages, sitemaps, robots.txt files, cookies, frames, commands and requests to the parsers.

    .venv/bin/python scripts/bench/fuzz.py [--cpu SECONDS] [--seed N] [--only NAME] [--keep DIR]

Each target (`tests/fuzz/targets.py`) gets the same CPU time. A turn is the time for which an input would
block the loop. The worst turn is printed. The length of a turn is the CPU time of the thread, measured three
times; the smallest value counts. With --keep, the inputs that failed and the slowest input of each target are
written to DIR. The exit code is 1 if any input led to an exception, or if a turn took over 100 ms.
"""

import logging
import sys
from pathlib import Path

import programs  # noqa: F401

from crawler.bench import harness
from tests.fuzz.fuzzing import TURN_MAX, Tally, fuzz
from tests.fuzz.targets import targets


def main() -> int:
    """Print one line per target."""
    parser = harness.parser(__doc__)
    parser.option("--cpu", 300.0, "CPU seconds for all targets together")
    parser.option("--seed", 1)
    parser.option("--only", "", "run only the target of this name")
    parser.option("--keep", Path, "folder for failed and slow inputs", metavar="DIR")
    args = parser.parse_args()
    logging.getLogger("crawler").addHandler(logging.NullHandler())
    print(
        f"{'target':15} {'seed':>5} {'inputs':>9} {'ways':>5} {'CPU s':>7} {'worst turn':>11} {'failed':>7}"
    )
    good = True
    with targets() as known:
        chosen = [target for name, target in known.items() if args.only in ("", name)]
        for target in chosen:
            tally = fuzz(target, args.seed, cpu_seconds=args.cpu / len(chosen))
            show(tally)
            if args.keep is not None:
                keep(tally, args.keep)
            good = good and not tally.failed and tally.worst <= TURN_MAX
    return 0 if good else 1


def show(tally: Tally) -> None:
    """Print one row, and the failures."""
    print(
        f"{tally.target:15} {tally.seed:5} {tally.runs:9,} {tally.ways:5} {tally.cpu_seconds:7.0f} "
        f"{tally.worst * 1e3:8.1f} ms {tally.failed:7}",
        flush=True,
    )
    for failure in tally.failures:
        print(f"  {len(failure.data)} bytes: {failure.data[:200]!r}\n{failure.text}", flush=True)


def keep(tally: Tally, folder: Path) -> None:
    """Write the inputs that failed, and the slowest input."""
    folder.mkdir(parents=True, exist_ok=True)
    name = tally.target.replace(" ", "-")
    (folder / f"{name}.{tally.seed}.slowest").write_bytes(tally.slowest)
    for number, failure in enumerate(tally.failures):
        (folder / f"{name}.{tally.seed}.failed.{number}").write_bytes(failure.data)


if __name__ == "__main__":
    sys.exit(main())
