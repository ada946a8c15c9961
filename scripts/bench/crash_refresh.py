"""Kill a refreshing crawl twenty times; check that no committed state is lost and that the crawl stays polite.

    python scripts/bench/crash_refresh.py [--kills 20] [--pages 40] [--last 15] [--seed 1] [--kill-for 600] [--living]

With `--living`, new pages appear, and hubs, a feed and sitemaps announce them. `tests/faults/living.py` lists
the additional checks.

Half of the kills happen at named points of the write path. The other kills come from outside, after some
requests. `tests/faults/refreshing.py` lists the checks, which read the log of the web server. At the end,
`crawler refresh` runs undisturbed, and its predictions are compared with the changes that it found.
"""

import asyncio
import random
import tempfile
import time
from pathlib import Path

import programs  # noqa: F401

from crawler.bench import harness
from crawler.clock import SystemClock
from tests.faults.living import living_web
from tests.faults.refreshing import SPEED, changing_web, run

POINTS = ("fetch begun", "record appended", "synced", "batch written", "committed")


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--kills", 20)
    parser.option("--pages", 40, "pages on each of 3 hosts")
    parser.option("--last", 15.0, "seconds of the last run")
    parser.option("--seed", 1, "seed of the kills")
    parser.option("--kill-for", 600.0, "seconds after which no more kills happen")
    parser.option("--living", False, "let new pages appear")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    faults = [
        f"{rng.choice(POINTS)}:{rng.randrange(1, 25)}" if n % 2 else f"{rng.randrange(1, 60)}"
        for n in range(args.kills)
    ]
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        now = SystemClock().now()
        web = living_web(now, SPEED, args.pages) if args.living else changing_web(now, pages=args.pages)
        verdict = asyncio.run(run(web, Path(folder), faults, args.last, kill_for=args.kill_for))
    print(
        f"{len(web)} pages, {verdict.kills} kills, {verdict.requests:,} requests, {time.monotonic() - begun:.0f} s; "
        f"at most {verdict.open} requests lost by a kill"
    )
    if verdict.left:
        print(
            f"{'kill':>5}{'credited':>10}{'hubs':>6}{'births':>8}{'validators':>12}{'sources':>9}{'problems':>10}"
        )
    for number, state in enumerate(verdict.left, 1):
        print(
            f"{number:5}{state.credited:10,}{state.hubs:6}{state.births:8}{len(state.validators):12}"
            f"{len(state.sources):9}{len(state.problems):10}"
        )
    print(f"{'predicted':>10}{'found':>8}{'refreshes':>11}")
    for row in verdict.calibration:
        print(f"{row['predicted']:10.3f}{row['found']:8.3f}{row['refreshes']:11,}")
    for problem in verdict.problems:
        print(problem)
    raise SystemExit("failed: the crawler did not keep its promises" if verdict.problems else 0)


if __name__ == "__main__":
    main()
