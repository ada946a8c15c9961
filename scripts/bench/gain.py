"""What the refresh frontier gains over asking every page equally often, over HTTP: the gain learned of the gain possible.

    python scripts/bench/gain.py                          # the four arms below, at once
    python scripts/bench/gain.py validators noise         # tables of their own
    python scripts/bench/gain.py --visits 40 --rate 100   # 160 s
    python scripts/bench/gain.py --arms uniform,learned

A web of 400 pages on 4 hosts of 127.0.0.0/8 (poisson, bursty, co-changing, poisson; rates log-normal with
sigma 1.5; word of changes with recall 1, .6, .3, 0 and noise 0, .5, 2, 0 times the change rate) changes about a
million times as fast as a real one. The shipped crawl refreshes it in several arms at once, each in a process of
its own with a web of its own that changes alike, so that they share the machine's lot. Each asks --rate times a
second. Freshness is the server log's: the share of page time in which the last whole answer was the present
version, after the first half of the time. Arms whose numbers of requests differ are not to be compared: lower --rate.

    gain: uniform, oracle (true parameters), learned, deaf (learned, no word of changes), oracle-only (no exploration)
    validators: learned, on hosts whose validators are right, always 304, fixed, new in each answer
    noise: deaf, and told of 2 false signals for each change and no true one
"""

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec
import uvloop

from crawler.lab.changing.gain import DEAF, LEARNED, ORACLE, UNIFORM, Arm, GainGame, Played, play
from crawler.lab.changing.web import HostSpec

PROCESSES = ("poisson", "bursty", "together", "poisson")
WORD = ((1.0, 0.0), (0.6, 0.5), (0.3, 2.0), (0.0, 0.0))
TABLES = ("gain", "validators", "noise")


def hosts(word: tuple[tuple[float, float], ...], validators: str = "right") -> tuple[HostSpec, ...]:
    return tuple(
        HostSpec(
            f"h{number}",
            process=process,
            rate=1.0,
            spread=1.5,
            lastmod="none",
            recall=recall,
            noise=noise,
            validators=validators,
        )
        for number, (process, (recall, noise)) in enumerate(zip(PROCESSES, word, strict=True))
    )


def rows(table: str, game: GainGame) -> list[tuple[str, GainGame, Arm]]:
    """(name, game, arm) of the table's rows."""
    if table == "validators":
        kinds = ("right", "always-304", "etag-fixed", "etag-new")
        return [(kind, _on(game, hosts(WORD, kind)), LEARNED) for kind in kinds]
    if table == "noise":
        noisy = _on(game, hosts(((0.0, 2.0),) * 4))
        return [("none", noisy, DEAF), ("noise", noisy, LEARNED)]
    arms = [(arm.name, game, arm) for arm in (UNIFORM, ORACLE, LEARNED, DEAF)]
    return [*arms, ("oracle-only", msgspec.structs.replace(game, explore=0.0), ORACLE)]


def _on(game: GainGame, hosts: tuple[HostSpec, ...]) -> GainGame:
    return msgspec.structs.replace(game, hosts=hosts)


def played(game: GainGame, arm: Arm) -> Played:
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(play(game, arm, Path(folder) / "crawl"))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tables", nargs="*", default=["gain"], metavar="TABLE", help=", ".join(TABLES))
    parser.add_argument("--arms", default="", metavar="A,B", help="only these rows (all)")
    parser.add_argument("--visits", type=float, default=20.0, help="crawls of a page on average (20)")
    parser.add_argument("--rate", type=float, default=60.0, help="requests a second of each arm (60)")
    parser.add_argument("--budget", type=float, default=2.0, help="requests, as multiples of the changes (2)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"no table {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    game = GainGame(hosts(WORD), visits=args.visits, rate=args.rate, budget=args.budget, seed=args.seed)
    wanted = args.arms.split(",") if args.arms else None
    asked = [(table, *row) for table in args.tables for row in rows(table, game)]
    asked = [row for row in asked if wanted is None or row[1] in wanted]
    print(
        f"{len(asked)} arms at once, {game.seconds:.0f} s, {game.speed / 86400:.1f} days a second", flush=True
    )
    with ProcessPoolExecutor(len(asked), mp_context=get_context("spawn")) as pool:
        came = list(pool.map(played, [row[2] for row in asked], [row[3] for row in asked]))
    for table in args.tables:
        mine = {row[1]: one for row, one in zip(asked, came, strict=True) if row[0] == table}
        print(f"\n{table:24} {'fresh':>7} {'requests':>9} {'plain':>6}{'gain':>8}")
        for name, one in mine.items():
            gain = ""
            if table == "gain" and {"oracle", "uniform"} <= set(mine):
                possible = mine["oracle"].freshness - mine["uniform"].freshness
                gain = f"{(one.freshness - mine['uniform'].freshness) / possible:8.3f}"
            plain = one.requests - one.conditional
            print(f"{name:24} {one.freshness:7.4f} {one.requests:9,} {plain:6,}{gain}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
