"""Measure, over HTTP, the gain of the refresh frontier over uniform refreshing, as a share of the possible gain.

    python scripts/bench/gain.py                          # the four arms below, at once
    python scripts/bench/gain.py validators noise         # other tables
    python scripts/bench/gain.py --visits 40 --rate 100   # 160 s
    python scripts/bench/gain.py --arms uniform,learned

A web of 400 pages on 4 hosts of 127.0.0.0/8 changes about a million times as fast as a real one. The hosts
change in different ways (poisson, bursty, co-changing, poisson), at log-normal rates with sigma 1.5. The
signals of changes that the four hosts send have, in the order of the hosts, the recall 1, 0.6, 0.3 and 0. The
rate of false signals is, in the same order, 0, 0.5, 2 and 0 times the change rate. The real crawler refreshes
this web in several arms at the same time. Each arm has its own process and its own web. All webs change
identically, and all arms suffer the same load of the machine. Each arm sends --rate requests per second.
Freshness is computed from the server's log for the second half of the run. The freshness of a page is the
share of the time in which the last complete answer was the current version; the result is the mean over the
pages, weighted by importance. Arms that sent different numbers of requests cannot be compared. If the numbers
differ, use a lower --rate.

`crawler lab worlds` measures the gain on over sixty simulated webs, on a virtual clock.

    gain: uniform, oracle (true parameters), learned, deaf (learned, no signals), oracle-only (no exploration)
    validators: learned, on hosts whose validators are right or false in different ways (`lab/changing/web.py`),
        and on hosts whose validators are right except on one page, or in one directory of ten pages
    noise: deaf; and learned, with 2 false signals and no true signal per change
    daily: a web of 400 pages that change about once a day, importance Pareto, each fetched every 16 hours on average
        for ten days (30 requests per second, 200 s): uniform, learned, greedy, without the neighbourhood clock, oracle
    few: 3 hosts of 1,000 pages each that change about once a day, importance Pareto, 0.3 fetches per change, 6
        fetches per page (20 requests per second, 900 s). The first host needs 0.1 s for an answer for half of the
        time, and the crawl waits four times as long as an answer took. So a slow host can be sent only a third of
        its share of the requests: uniform, learned, oracle
    many: the same with 1,000 hosts of 3 pages. For half of the time, half of the hosts need 2 s for an answer
    news: 600 pages and 4.2 articles a day on ten hubs, 150 days of 16 requests (15 per second, 160 s); the first 40
        days find the pages. Delays from birth to copy, in days, of articles born after 60 days and before the
        last 14; an article without a copy has an infinite delay. Rows: a fixed share for known pages, `auto`, its
        new_page_weight, births in a sitemap or feed. Below `auto` stands the most that any schedule could keep fresh:
        GREEDY with the true rates, without HTTP, if births were announced and all requests went to pages (and if
        as many went to listings as in this row)
"""

import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import msgspec
import numpy as np
import uvloop

from crawler.bench import harness
from crawler.config.schema import RefreshConfig
from crawler.lab.changing.gain import DEAF, LEARNED, ORACLE, UNIFORM, Arm, GainGame, Played, play, web_of
from crawler.lab.changing.web import HostSpec

PROCESSES = ("poisson", "bursty", "together", "poisson")
WORD = ((1.0, 0.0), (0.6, 0.5), (0.3, 2.0), (0.0, 0.0))
TABLES = ("gain", "validators", "noise", "daily", "few", "many", "news")
DAILY = GainGame(
    tuple(HostSpec(f"h{n}", rate=1.0, spread=1.0, lastmod="none") for n in range(4)),
    visits=15.0, rate=30.0, budget=1.5, change_days=1.0, warm_up=0.2, pareto=1.2,
)  # fmt: skip
SPARSE = msgspec.structs.replace(DAILY, visits=6.0, rate=20.0, budget=0.3, warm_up=0.4)
PATIENT = {"politeness": {"delay_factor": 4.0}}
NEWS = GainGame(
    (HostSpec("h", pages=600, directories=60, rate=1.0, lastmod="none", articles=630, hubs=10),),
    visits=4.0, rate=15.0, budget=8.0, change_days=300.0, warm_up=0.4,
)  # fmt: skip


KINDS = (
    "right", "always-304", "bare-304", "etag-fixed", "etag-new", "etag-unknown", "date-fixed",
)  # fmt: skip
LIARS = {
    "one page etag-fixed": (("/d3/p33.html", "etag-fixed"),),
    "one page bare-304": (("/d3/p33.html", "bare-304"),),
    "one directory etag-fixed": (("/d3/", "etag-fixed"),),
    "one directory bare-304": (("/d3/", "bare-304"),),
}


def hosts(
    word: tuple[tuple[float, float], ...],
    validators: str = "right",
    exceptions: tuple[tuple[str, str], ...] = (),
) -> tuple[HostSpec, ...]:
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
            exceptions=exceptions,
        )
        for number, (process, (recall, noise)) in enumerate(zip(PROCESSES, word, strict=True))
    )


def _slow_hosts(table: str) -> tuple[HostSpec, ...]:
    """Return the hosts of the table `few` or `many`, some of which answer slowly for half of the time."""
    if table == "few":
        host = HostSpec("h", pages=1000, directories=40, rate=1.0, lastmod="none", slow_period=120.0)
        delays = [0.1, 0.0, 0.0]
    else:
        host = HostSpec("h", pages=3, directories=1, rate=1.0, lastmod="none", slow_period=120.0)
        delays = [0.0, 2.0] * 500
    return tuple(
        msgspec.structs.replace(host, name=f"h{number}", slow=slow) for number, slow in enumerate(delays)
    )


def rows(table: str, game: GainGame) -> list[tuple[str, GainGame, Arm]]:
    """Return (name, game, arm) for each row of the table."""
    if table == "validators":
        whole = [(kind, _on(game, hosts(WORD, kind)), LEARNED) for kind in KINDS]
        return whole + [(name, _on(game, hosts(WORD, "right", own)), LEARNED) for name, own in LIARS.items()]
    if table == "noise":
        noisy = _on(game, hosts(((0.0, 2.0),) * 4))
        return [("none", noisy, DEAF), ("noise", noisy, LEARNED)]
    if table == "daily":
        greedy = Arm("greedy", policy="greedy")
        plain = Arm("neighbourhood=false", settings={"refresh": {"neighbourhood": False}})
        return [(arm.name, _seeded(DAILY, game), arm) for arm in (UNIFORM, LEARNED, greedy, plain, ORACLE)]
    if table in ("few", "many"):
        slow = _on(_seeded(SPARSE, game), _slow_hosts(table))
        patient = [msgspec.structs.replace(arm, settings=PATIENT) for arm in (UNIFORM, LEARNED, ORACLE)]
        return [(arm.name, slow, arm) for arm in patient]
    if table == "news":
        return _news(_seeded(NEWS, game))
    arms = [(arm.name, game, arm) for arm in (UNIFORM, ORACLE, LEARNED, DEAF)]
    return [*arms, ("oracle-only", msgspec.structs.replace(game, explore=0.0), ORACLE)]


def _news(game: GainGame) -> list[tuple[str, GainGame, Arm]]:
    def arm(
        share: float | str, weight: float = RefreshConfig().new_page_weight, sitemaps: bool = False
    ) -> Arm:
        return Arm(
            "news",
            settings={
                "refresh": {"share": share, "new_page_weight": weight},
                "sitemaps": {"robots": sitemaps},
                "due": {"max_wait": 0.05},
            },
        )

    listed = [msgspec.structs.replace(host, lastmod="honest") for host in game.hosts]
    fed = [msgspec.structs.replace(host, feed=True) for host in game.hosts]
    return [
        ("share=.9", game, arm(0.9)),
        ("share=.2", game, arm(0.2)),
        ("auto", game, arm("auto")),
        ("auto weight 1", game, arm("auto", 1.0)),
        ("auto weight 3", game, arm("auto", 3.0)),
        ("auto weight 10", game, arm("auto", 10.0)),
        ("auto in a sitemap", _on(game, tuple(listed)), arm("auto", sitemaps=True)),
        ("auto in a feed", _on(game, tuple(fed)), arm("auto")),
    ]


def _seeded(game: GainGame, by: GainGame) -> GainGame:
    return msgspec.structs.replace(game, seed=by.seed)


def _on(game: GainGame, hosts: tuple[HostSpec, ...]) -> GainGame:
    return msgspec.structs.replace(game, hosts=hosts)


def played(game: GainGame, arm: Arm) -> Played:
    with tempfile.TemporaryDirectory() as folder:
        return uvloop.run(play(game, arm, Path(folder) / "crawl"))


def _gain(one: Played, table: dict[str, Played]) -> str:
    """Return the gain over the arm `uniform`, divided by the gain of the arm `oracle` in the same table."""
    if not {"oracle", "uniform"} <= set(table):
        return ""
    uniform = table["uniform"].freshness
    return f"{(one.freshness - uniform) / (table['oracle'].freshness - uniform):8.3f}"


def _late(delays: list[float]) -> str:
    """Return the median and 90 % quantile of the delays.

    Return also the share of articles without a copy, and the number of articles.
    """
    sorted_delays = np.sort(delays)
    half, most = (sorted_delays[int(share * (len(delays) - 1))] for share in (0.5, 0.9))
    return f"{half:8.2f}{most:8.2f}{np.isinf(sorted_delays).mean():7.3f}{len(delays):9,}"


def most_fresh(game: GainGame, others: float) -> float:
    """Return the freshness that GREEDY reaches in simulated time if it knows the true rates and all births.

    `others` is the share of the requests that do not go to pages.
    """
    web = web_of(game, 0.0)
    rates, born = np.array(web.rates), np.array(web.born)
    last = np.full(len(web), np.nan)
    rate = game.rate * (1.0 - others)
    for turn in range(int(game.seconds * rate)):
        now = (turn + 0.5) / rate
        expected = rates * (now - last)
        value = (1.0 - (1.0 + expected) * np.exp(-expected)) / rates
        value[np.isnan(last)] = np.inf
        page = int(np.argmax(np.where(born <= now, value, -1.0)))
        last[page] = now
        web.answer(web.host_of[page], web.path(page), {}, now)
    return web.freshness(game.warm_up * game.seconds, game.seconds)


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("tables", nargs="*", default=["gain"], metavar="TABLE", help=", ".join(TABLES))
    parser.option("--arms", "", "only these rows (all)", metavar="A,B")
    parser.option("--visits", 20.0, "mean crawls per page")
    parser.option("--rate", 60.0, "requests per second of each arm")
    parser.option("--budget", 2.0, "requests, as a multiple of the changes")
    parser.option("--seed", 1)
    parser.option("--at-once", 0, "number of arms that run at once (all)")
    args = parser.parse_args()
    if unknown := set(args.tables) - set(TABLES):
        parser.error(f"unknown table {', '.join(sorted(unknown))}; choose from {', '.join(TABLES)}")
    game = GainGame(hosts(WORD), visits=args.visits, rate=args.rate, budget=args.budget, seed=args.seed)
    wanted = args.arms.split(",") if args.arms else None
    asked = [(table, *row) for table in args.tables for row in rows(table, game)]
    asked = [row for row in asked if wanted is None or row[1] in wanted]
    at_once = args.at_once or len(asked)
    seconds = max(row[2].seconds for row in asked) * -(-len(asked) // at_once)
    print(f"{len(asked)} arms, {at_once} at once, about {seconds:.0f} s", flush=True)
    with ProcessPoolExecutor(at_once, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        came = list(pool.map(played, [row[2] for row in asked], [row[3] for row in asked]))
    for table in args.tables:
        mine = {row[1]: one for row, one in zip(asked, came, strict=True) if row[0] == table}
        news = f"{'p50':>8}{'p90':>8}{'never':>7}{'articles':>9}" if table == "news" else f"{'gain':>8}"
        counts = f"{'requests':>9} {'plain':>6} {'304':>6} {'same 200':>9} {'others':>6}"
        print(f"\n{table:24} {'fresh':>7} {counts}{news}")
        for name, one in mine.items():
            more = _late(one.delays) if table == "news" else _gain(one, mine)
            plain = one.requests - one.conditional
            counts = f"{one.requests:9,} {plain:6,} {one.not_modified:6,} {one.repeated:9,} {one.others:6,}"
            print(f"{name:24} {one.freshness:7.4f} {counts}{more}")
            if name == "auto":
                listed = one.others / max(one.requests + one.others, 1)
                most = [most_fresh(_seeded(NEWS, game), share) for share in (0.0, listed)]
                print(f"{'  at most':24} {most[0]:7.4f}, with as many requests for listings {most[1]:.4f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
