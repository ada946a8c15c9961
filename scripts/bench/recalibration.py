"""Judge or refit the constants of the correction of P(fresh) (`freshness/recalibration.py`).

    python scripts/bench/recalibration.py --data histories               judge the shipped constants
    python scripts/bench/recalibration.py --data histories --fit 300     search for better constants in 300 steps

The script first simulates crawls with the shipped schedule, on histories of the league and on simulated webs.
The values of the schedule are not corrected. In each drawing of the league, the pages of each site are drawn
at random, and the histories end zero, one or two years earlier. All crawls of a run, and samples of the
copies, are kept in the folder `--work`. Then each run is replayed with one set of constants, and the
corrected probabilities of the sampled copies are compared with the truth. For each arm and budget of the
league, and for each simulated web, the script groups the copies by the tenth in which the corrected
probability lies (a decile), and prints the largest error of all deciles. Deciles with less than a hundredth
of the copies are ignored. The next two columns show the error that a perfectly calibrated prediction would
have on the same samples: its mean and its 95th percentile (`crawler/lab/living/calibration.py`). `beyond` is
the number of deciles whose error is more than two standard errors above .03. `true` is the largest error of
the probabilities that a schedule with the true parameters of each page states on the same web
(`crawler/lab/league/truth.py`), and the second `beyond` is its number of deciles.

The search uses drawings 1 to N of the league and seeds 1 to N of the simulated webs, where N is `--drawings`.
The constants that the search finds are then judged with drawings and seeds N + 1 to 2N, which the search did
not use. In each step of the search, one constant is changed at random, and the change is kept if the errors
become smaller. Two searches with the same `--seed`, number of drawings and number of steps find the same
constants. With three drawings, recording the runs takes five minutes of CPU time, and each step of the search
takes a second.
"""

import argparse
import math
import random
import sys
import tempfile
from collections.abc import Iterable, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.bench import harness
from crawler.freshness.recalibration import (
    FITTED,
    Constants,
    Hearing,
    Recalibration,
    SiteSlope,
)
from crawler.frontier.refresh import Settings
from crawler.frontier.refresh.expectation import corrected, crawl_of
from crawler.frontier.refresh.settings import PageView
from crawler.lab.league import contenders, histories
from crawler.lab.league import world as worlds
from crawler.lab.league.shipped import Shipped
from crawler.lab.living import calibration, playing, refitting
from crawler.lab.living.worlds import WORLDS, draw
from crawler.lab.parallel import results

ARMS, BUDGETS = ("none", "mixed", "honest"), (0.3, 1.0, 3.0)
MORE_ARMS = ("feed", "directory")  # arms that judge, but that the search does not use
SIMULATED = (
    "day-0.3x", "day-1x", "day-honest", "day-noisy", "day-together", "day-uneven", "day-uneven-0.3x",
    "month-3x", "month-bursty", "month-uneven", "month-uneven-0.3x",
)  # fmt: skip
YEAR = 365 * 86_400
ALLOWED = 0.015  # the systematic error that is expected of a good prediction
UNKNOWN = 0.1  # the standard error that is assumed for a decile with copies of only one site
SITE = 8  # the column of a row with the number of the site
CHECKED = 2000  # rows of a run for which the compiled replay is compared with `Recalibration`
LARGE = 2.0  # from this relative error on, the cost is linear


class Run(msgspec.Struct, frozen=True):
    """One run of the schedule: an arm of the league at a budget, or a simulated web (budget 0)."""

    name: str
    budget: float
    drawing: int

    @property
    def group(self) -> str:
        return f"{self.name} {self.budget:g}x" if self.budget else self.name


class Recording(Shipped):
    """The shipped schedule, which records every crawl and every sampled copy.

    The first column of `rows` is 0 for a crawl and 1 for a sample, or 2 for a sample on a site whose weekly rhythm is in
    use: its probability is already corrected.
    The next columns are the arguments of
    `Recalibration.observe`. The last one is the number of the site; `numbers` maps the sites of the world to
    these numbers.
    """

    def __init__(self, numbers: Sequence[int], *args: Any, **named: Any) -> None:
        super().__init__(*args, judged=True, **named)
        self._numbers = numbers
        self.rows: list[tuple[float, ...]] = []
        self._looked: PageView

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        if (known := self._asked.get(page)) is not None:
            self._note(page, 0.0, known, changed)
        super().record_outcome(page, now, changed)

    def fresh(self, page: int, now: float) -> tuple[float, float]:
        stated = super().fresh(page, now)
        if stated[0] >= 0.0:
            self._looked = self.schedule.overview.page(self._number[page], now)
        return stated

    def note_sample(self, page: int, current: bool) -> None:
        """Record the copy of a page whose freshness was stated last."""
        self._note(page, 1.0, self._looked, not current)

    def _note(self, page: int, sample: float, known: PageView, changed: bool) -> None:
        site = self._numbers[self._site[page]]
        if known.rhythm:
            # These probabilities do not depend on the constants that are judged.
            if sample:
                self.rows.append(
                    (2.0, corrected(Recalibration(), known), *crawl_of(known, changed)[1:], site)
                )
            return
        self.rows.append((sample, *crawl_of(known, changed), site))


class Sampling(calibration.Calibration):
    """Lets a `Recording` record each sample with the truth. Deleted pages are not sampled."""

    def __init__(self, recording: Recording, *args: Any) -> None:
        super().__init__(recording.fresh, *args)
        self._recording = recording

    def note(self, page: int, stated: tuple[float, float], current: bool) -> None:
        super().note(page, stated, current)
        self._recording.note_sample(page, current)


# -- playing


def drawn(history: histories.SiteHistory, drawing: int) -> histories.SiteHistory | None:
    """Return the history that ends 0, 1 or 2 years earlier, with random hashes; None if no page is left."""
    end = history.end - drawing % 3 * YEAR
    kept = history.born <= end
    number = np.cumsum(kept) - 1
    counts = (history.time <= end) & kept[history.page]
    if not kept.any():
        return None
    hashes = np.random.default_rng([drawing, len(kept)]).permutation(int(kept.sum())).astype(np.uint64)
    return histories.SiteHistory(
        name=history.name,
        born=history.born[kept],
        died=np.where(history.died[kept] > end, 0, history.died[kept]),
        hash=hashes,
        dir=history.dir[kept],
        page=number[history.page[counts]],
        time=history.time[counts],
        added=history.added[counts],
        removed=history.removed[counts],
        published=np.append(history.published[history.published <= end], end),
    )


def built(run: Run, data: Path, pages: int) -> tuple[worlds.World, list[int]]:
    """Return the world of a run of the league, and the number of each of its sites."""
    whole = histories.read_folder(data)
    sites = [found for each in whole if (found := drawn(each, run.drawing))]
    world = worlds.build(sites, run.name, pages=pages)
    names = [each.name for each in whole]
    return world, [names.index(name) for name in world.sites]


def played(run: Run, data: Path, pages: int, work: Path) -> None:
    """Play a run, and write its crawls and samples to the folder `work`."""
    path = work / f"{run.group}-{run.drawing}.npy"
    if path.exists():
        return
    if run.budget:
        world, numbers = built(run, data, pages)
        rate = run.budget * world.change_rate
        policy = Recording(numbers, world, rate, Settings(), born=world.born)
        begin = worlds.WARMUP * world.horizon
        samples = Sampling(policy, world.changes, world.site, begin, world.horizon, world.died)
        worlds.play(world, policy, rate, samples)
    else:
        web = draw(WORLDS[run.name], run.drawing)
        policy = Recording(range(len(web.sites)), web, web.spec.rate, Settings())
        begin = web.spec.warm_up * web.horizon
        playing.play(web, policy, Sampling(policy, web.changes, web.site, begin, web.horizon))
    np.save(path, np.array(policy.rows))


def refer(run: Run, data: Path, pages: int, work: Path) -> np.ndarray:
    """Play a run with the true parameters of each page.

    Return the sums from which `calibration.deciles` makes deciles.
    """
    path = work / f"{run.group}-{run.drawing}-true.npy"
    if not path.exists():
        if run.budget:
            world, numbers = built(run, data, pages)
            found = contenders.judged(contenders.TRUE, world, run.budget * world.change_rate)
            sums = np.zeros((max(numbers) + 1, *found.shape[1:]))
            sums[numbers] = found
        else:
            sums = playing.judged(playing.TRUE, draw(WORLDS[run.name], run.drawing))
        np.save(path, sums)
    return np.asarray(np.load(path))


def replayed(run: Run, work: Path, constants: Constants) -> np.ndarray:
    """Replay a run, correct its probabilities, and return the sums from which `calibration.deciles` makes deciles."""
    return _replay(_rows(work, run), constants)


@cache
def _rows(work: Path, run: Run) -> np.ndarray:
    """Return the recorded crawls and samples of a run."""
    return np.load(work / f"{run.group}-{run.drawing}.npy")


def checked(run: Run, work: Path) -> None:
    """Compare the compiled replay with `Recalibration` on the first rows of a run.

    Raises:
        RuntimeError: the two state different probabilities.
    """
    rows = _rows(work, run)[:CHECKED]
    sums = _empty(rows)
    state = Recalibration(constants=FITTED)
    slopes = dict.fromkeys(rows[:, SITE].tolist(), SiteSlope())
    for sample, fresh, hearing, weight, changed, new, haste, reliability, site in rows.tolist():
        own = slopes[site]
        if sample:
            heard = Hearing(int(hearing))
            told = (
                fresh if sample > 1.0 else state.corrected(fresh, heard, bool(new), haste, reliability, own)
            )
            for kind, stated in enumerate((fresh, told)):
                decile = min(int(calibration.DECILES * stated), calibration.DECILES - 1)
                sums[int(site), kind, decile] += (1.0, stated, not changed)
        else:
            slopes[site] = state.observe(
                fresh, Hearing(int(hearing)), weight, bool(changed), bool(new), haste, reliability, own
            )
    if not np.allclose(sums, _replay(rows, FITTED), atol=1e-6):
        raise RuntimeError(f"{run}: the compiled replay differs from Recalibration")


def _replay(rows: np.ndarray, constants: Constants) -> np.ndarray:
    sums = _empty(rows)
    refitting.replay(rows, constants, sums)
    return sums


def _empty(rows: np.ndarray) -> np.ndarray:
    return np.zeros((int(rows[:, SITE].max()) + 1, len(calibration.KINDS), calibration.DECILES, 3))


# -- judging


def errors(runs: list[Run], work: Path, constants: Constants, processes: int) -> dict[str, np.ndarray]:
    """Return the sums of the deciles for each group of runs, and also for all budgets of each arm together.

    The runs of the league have the same sites. Each run of a simulated web has sites of its own.
    """
    return together(runs, results(partial(replayed, work=work, constants=constants), runs, processes))


def together(runs: list[Run], each: Iterable[np.ndarray]) -> dict[str, np.ndarray]:
    """Put the sums of the runs together, as `errors` describes it."""
    found: dict[str, list[np.ndarray]] = {}
    for run, sums in zip(runs, each, strict=True):
        for name in (run.group, run.name) if run.budget else (run.group,):
            found.setdefault(name, []).append(sums)
    return {
        name: np.concatenate(parts) if name in SIMULATED else _added(parts) for name, parts in found.items()
    }


def _added(parts: list[np.ndarray]) -> np.ndarray:
    """Add the sums of runs with the same sites; the last sites are missing in some runs."""
    whole = np.zeros((max(map(len, parts)), *parts[0].shape[1:]))
    for sums in parts:
        whole[: len(sums)] += sums
    return whole


def cost(found: dict[str, np.ndarray]) -> float:
    """Return the sum of the errors of all deciles, relative to the errors that are expected of a good prediction.

    The errors are squared up to `LARGE`, and linear from there on. Rare deciles count less.
    """
    total = 0.0
    for sums in found.values():
        rows = [row for row in calibration.deciles(sums) if row.kind == "told"]
        copies = sum(row.copies for row in rows)
        for row in rows:
            share = min(max((row.copies / copies - 0.005) / 0.02, 0.0), 1.0)
            expected = math.hypot(ALLOWED, UNKNOWN if math.isnan(row.error) else row.error)
            off = abs(row.off) / expected
            total += share * (off * off if off < LARGE else LARGE * (2.0 * off - LARGE))
    return total


def changed(constants: Constants, rng: random.Random) -> Constants:
    """Return the constants after a random change of one of them."""
    prior, precision, beyond = list(constants.prior), list(constants.precision), list(constants.beyond)
    place = rng.randrange(len(prior))
    kind = rng.choice(("prior", "precision", "memory", "centre", "beyond", "site_precision", "site_memory"))
    if kind == "prior":
        prior[rng.choice([k for k, value in enumerate(prior) if value])] += rng.gauss(0.0, 0.1)
    elif kind == "precision":
        precision[place] *= 2.0 ** rng.gauss(0.0, 1.0)
    elif kind in ("memory", "centre", "site_precision", "site_memory"):
        value = getattr(constants, kind) * 1.5 ** rng.gauss(0.0, 1.0)
        return msgspec.structs.replace(constants, **{kind: value})
    else:
        beyond[place] += rng.gauss(0.0, 0.2)
    return msgspec.structs.replace(
        constants, prior=tuple(prior), precision=tuple(precision), beyond=tuple(beyond)
    )


def report(found: dict[str, np.ndarray], true: dict[str, np.ndarray]) -> None:
    print(
        f"{'web':<18} {'worst':>5} {'chance':>6} {'95 %':>5} {'beyond':>6} {'true':>5} {'beyond':>6}  "
        "stated/true by decile"
    )
    for name, sums in found.items():
        rows, best = calibration.deciles(sums), calibration.deciles(true[name])
        mean, most = calibration.chance(sums, "told")
        line = " ".join(f"{row.stated:.2f}/{row.true:.2f}" for row in rows if row.kind == "told")
        print(
            f"{name:<18} {calibration.worst(rows, 'told'):5.3f} {mean:6.3f} {most:5.3f} "
            f"{calibration.beyond_aim(rows, 'told'):6} {calibration.worst(best, 'said'):5.3f} "
            f"{calibration.beyond_aim(best, 'said'):6}  {line}"
        )


def main() -> None:
    parser = harness.parser(__doc__)
    add = parser.option
    add("--data", Path, "folder of histories: one SITE.npz per site", required=True, metavar="DIR")
    add("--work", Path, "folder of the recorded runs, which later calls use again", metavar="DIR")
    add("--drawings", 8, "drawings and seeds for the search, and as many that judge")
    add("--pages", 100, "pages a site")
    add("--fit", 0, "search for better constants", metavar="STEPS")
    add("--seed", 1, "seed of the search")
    add("--processes", 0, "runs replayed at a time (one per core)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work_on(args, args.work or Path(folder))


def work_on(args: argparse.Namespace, work: Path) -> None:
    work.mkdir(exist_ok=True, parents=True)
    processes, best = args.processes, FITTED
    fitting, judging = (
        [Run(arm, budget, n) for arm in arms for budget in BUDGETS for n in drawings]
        + [Run(name, 0.0, n) for name in SIMULATED for n in drawings]
        for arms, drawings in (
            (ARMS, range(1, args.drawings + 1)),
            ((*ARMS, *MORE_ARMS), range(args.drawings + 1, 2 * args.drawings + 1)),
        )
    )
    needed = [*judging, *(fitting if args.fit else ())]
    for _ in results(partial(played, data=args.data, pages=args.pages, work=work), needed, processes):
        pass
    checked(judging[0], work)
    if args.fit:
        rng = random.Random(args.seed)
        least = cost(errors(fitting, work, best, processes))
        for step in range(args.fit):
            tried = changed(best, rng)
            if (found := cost(errors(fitting, work, tried, processes))) < least:
                best, least = tried, found
                print(f"{step}: {least:.2f} {best}", file=sys.stderr, flush=True)
        print(best)
    refs = results(partial(refer, data=args.data, pages=args.pages, work=work), judging, processes)
    report(errors(judging, work, best, processes), together(judging, refs))


if __name__ == "__main__":
    main()
