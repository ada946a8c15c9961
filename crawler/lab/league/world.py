"""The world of the refresh league: real pages that change, and a crawl with a budget.

    histories --build--> World --play(policy, rate)--> GameResult: how long each page was current

`lab/league/README.md`, "Rules" describes the rules and the arms. The first fifth of the time does not count in
the score, because all copies are fresh at the start.
"""

import math
from collections.abc import Sequence
from zlib import crc32

import msgspec
import numpy as np

from crawler.errors import UsageError
from crawler.frontier.refresh.settings import RefreshOutcome
from crawler.lab.copies import Copies
from crawler.lab.league.histories import SiteHistory
from crawler.lab.living.calibration import Calibration
from crawler.lab.living.course import Era
from crawler.wording import not_one_of

DAY = 86_400.0
DAYS = 1461
DAYS_LEAST = 10
PAGES_A_SITE = 100
WARMUP = 0.2
LARGE = 10  # a feed announces only changes of more than this number of lines
MINOR = 2  # in the arm `minor`, changes of at most this number of lines do not count
UNKNOWN_TOLD = 0.35  # a feed announces this share of the changes whose size is unknown
POLITE = 1.5  # limit on the request rate of a site, as a multiple of the mean over sites
ZIPF_OFFSET = 10.0

ARMS = ("none", "honest", "lying", "feed", "directory", "mixed", "minor", "zipf", "polite")
KINDS = ("honest", "lying", "feed", "directory", "none")  # the kinds of sites in the arm `mixed`
TOLD = ("honest", "lying", "feed", "directory", "mixed")  # arms that differ from `none` only in their signals
SOURCES = {"honest": "sitemap", "lying": "sitemap", "feed": "feed", "directory": "sitemap"}


class Heard(msgspec.Struct, frozen=True):
    """The signals of all sources in a day: the signalled pages, in ascending order, and the date given for each."""

    pages: np.ndarray
    at: np.ndarray


class WorldPages(msgspec.Struct, frozen=True, kw_only=True):
    """The pages of a world, as policies see them. Times are in seconds from the start of the world.

    `changes[k]` are the sorted times at which page k changed. `sources[site]` is the source of a site's
    signals. `site` and `directory` hold the numbers of each page's site and directory. Directories are numbered
    over all sites.
    """

    sites: tuple[str, ...]
    site: np.ndarray
    directory: np.ndarray
    importance: np.ndarray
    changes: list[list[float]]
    sources: tuple[str, ...]
    polite: bool = False

    def __len__(self) -> int:
        return len(self.site)

    @property
    def blocks(self) -> bool:
        """True if sites are blocked at times."""
        return self.polite

    def gap(self, rate: float) -> float:
        """Return the seconds for which a site must rest after a fetch; 0 if the world is not polite."""
        return len(self.sites) / (POLITE * rate) if self.polite else 0.0


class World(WorldPages, frozen=True, kw_only=True):
    """A world of n pages that are born and deleted.

    `born` is 0 for a page that exists at the start. `died` is infinite for a page that is never deleted.
    `signals[d]` are read at the end of day d.
    """

    arm: str
    born: np.ndarray
    died: np.ndarray
    signals: list[Heard]
    days: int

    @property
    def horizon(self) -> float:
        return self.days * DAY

    @property
    def change_rate(self) -> float:
        """The changes per second of all pages together; it is the unit of budgets.

        Several changes of a page in a day count as one.
        """
        return sum(len({at // DAY for at in times}) for times in self.changes) / self.horizon

    def __repr__(self) -> str:
        changes = sum(map(len, self.changes))
        return f"World({self.arm}: {len(self.sites)} sites, {len(self)} pages, {changes} changes)"


class Policy:
    """A player of the league, which decides which page is fetched next. By default, it ignores all news but blocks.

    `claim_next` may return -1 to skip a fetch, and must not return a page of a blocked site.
    After `claim_next`, the caller calls `record_outcome`, or `remove` if the page was gone.
    """

    def __init__(self, world: WorldPages, rate: float) -> None:
        self._site = world.site.tolist()
        self._apart = world.blocks
        self._until = [0.0] * len(world.sites)

    def add(self, page: int, now: float) -> None:
        """Add a page that was found and fetched at `now`."""

    def note_change(self, page: int, source: str, at: float, now: float) -> None:
        """Record that `source` signals a change of the page at `at`."""

    def expect(self, hub: int, links: int, now: float) -> None:
        """Record that the first copy of a hub showed `links` nodes that no hub had shown before.

        For a list of a whole site, `links` includes `SITE_LIST_LINKS`, as in a crawl.
        """

    def credit(self, hub: int, found: float, now: float) -> None:
        """Record the first fetch of a URL that the hub was the first to show.

        `found` is 1 if the URL was a page, and 0 if it was gone.
        """

    def peek(self, now: float) -> None:
        """Look for the next page without taking it, as a crawl does after every event."""

    def claim_next(self, now: float) -> int:
        """Return the page to fetch now, or -1."""
        raise NotImplementedError

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        """Record the fetch of the page from `claim_next`.

        `changed` tells whether the page has changed since its previous fetch.
        """

    def record_return(self, page: int, now: float) -> None:
        """Record the fetch of the page from `claim_next`, which showed the version before the last copy again."""
        self.record_outcome(page, now, True)

    def remove(self, page: int, now: float) -> None:
        """Remove the page from `claim_next`, because it is gone."""

    def record_absence(self, page: int, now: float, result: RefreshOutcome) -> None:
        """Record that the fetch of the page from `claim_next` found no page. By default, only a failed page is kept."""
        if result is RefreshOutcome.FAILED:
            self.add(page, now)
        else:
            self.remove(page, now)

    def begin_era(self, era: Era, now: float) -> None:
        """Record that the rate of fetches, the importances or the true parameters of the pages have changed."""

    def resume(self, now: float) -> None:
        """Record that a pause of the crawl ends at `now`."""

    def close(self) -> None:
        """Release files that the policy holds, after the last call of another method."""

    def block(self, site: int, until: float) -> None:
        """Take no page of the site before `until`."""
        self._until[site] = until

    def _free(self, page: int, now: float) -> bool:
        return self._until[self._site[page]] <= now


class GameResult(msgspec.Struct, frozen=True):
    """The result of a game.

    `there` holds the seconds after the warm-up for which each page existed, and `current` those for which its
    copy was current. The other fields are counts.
    """

    current: np.ndarray
    there: np.ndarray
    fetches: int
    changed: int
    gone: int
    idle: int

    def by_site(self, world: World) -> tuple[np.ndarray, np.ndarray]:
        """Return two arrays (sites,): `current` and `there`, weighted by importance and summed over each site's pages."""
        pages, count = slice(0, len(self.there)), len(world.sites)
        current, there = (
            np.bincount(world.site[pages], weights=world.importance[pages] * values, minlength=count)
            for values in (self.current, self.there)
        )
        return current, there


# -- building


def days_of(histories: Sequence[SiteHistory]) -> int:
    """Return the number of days of the longest history, but at least 10 and at most 1461."""
    longest = max(history.end - int(history.born.min()) for history in histories)
    return min(max(math.ceil(longest / DAY), DAYS_LEAST), DAYS)


def build(
    histories: Sequence[SiteHistory], arm: str, *, pages: int = PAGES_A_SITE, days: int = DAYS, seed: int = 1
) -> World:
    """Return the world of an arm. The same seed yields the same ranks and the same feeds.

    Raises:
        UsageError: unknown arm, or no page exists in the window.
    """
    if arm not in ARMS:
        raise UsageError(f"--arms: {not_one_of(repr(arm), ARMS)}")
    kinds = _kinds([history.name for history in histories], arm)
    parts = [
        _site(history, kind, arm, pages, days, seed) for history, kind in zip(histories, kinds, strict=True)
    ]
    kept = [(history.name, part) for history, part in zip(histories, parts, strict=True) if part is not None]
    if not kept:
        raise UsageError(f"no page of these histories exists in their last {days} days")
    return _joined(kept, arm, days, seed)


class _Part(msgspec.Struct, frozen=True):
    """The part of the world that is one site; its pages are numbered from 0."""

    directory: np.ndarray
    born: np.ndarray
    died: np.ndarray
    changes: list[list[float]]
    told_at: np.ndarray  # the date of each signal; `told_of` holds the page of each signal
    told_of: np.ndarray
    source: str


def _kinds(names: list[str], arm: str) -> list[str]:
    """Return the kind of each site's signals. In the arm `mixed`, all kinds are about equally frequent."""
    if arm != "mixed":
        return [arm if arm in SOURCES else "none"] * len(names)
    order = sorted(range(len(names)), key=lambda k: (crc32(names[k].encode()), k))
    kinds = [""] * len(names)
    for place, k in enumerate(order):
        kinds[k] = KINDS[place % len(KINDS)]
    return kinds


def _site(history: SiteHistory, kind: str, arm: str, pages: int, days: int, seed: int) -> _Part | None:
    start = history.end - int(days * DAY)
    died = np.where(history.died == 0, np.iinfo(np.int64).max, history.died)
    lives = np.flatnonzero(died > start)
    chosen = lives[np.argsort(history.hash[lives], kind="stable")[:pages]]
    if not len(chosen):
        return None
    number = np.full(len(died), -1)
    number[chosen] = np.arange(len(chosen))
    counts = (history.time > start) & (history.time < died[history.page])
    counts &= history.time > history.born[history.page]
    size = np.where((history.added < 0) | (history.removed < 0), -1, history.added + history.removed)
    if arm == "minor":
        counts &= (size < 0) | (size > MINOR)
    rows = np.flatnonzero(counts & (number[history.page] >= 0))
    rows = rows[np.argsort(history.time[rows], kind="stable")]
    times, who = (history.time[rows] - start).astype(float), number[history.page[rows]]
    changes: list[list[float]] = [[] for _ in chosen]
    for at, page in zip(times.tolist(), who.tolist(), strict=True):
        changes[page].append(at)
    born = np.maximum(history.born[chosen] - start, 0).astype(float)
    gone = np.where(history.died[chosen] == 0, np.inf, history.died[chosen] - float(start))
    directory = np.unique(history.dir[chosen], return_inverse=True)[1]
    told_at, told_of = times, who
    if kind == "feed":
        rng = np.random.default_rng([seed, crc32(history.name.encode())])
        large = np.where(size[rows] < 0, rng.random(len(rows)) < UNKNOWN_TOLD, size[rows] > LARGE)
        told_at, told_of = times[large], who[large]
    elif kind == "directory":
        told_at, told_of = _told_of_directories(history, chosen, start, counts)
    elif kind == "lying":
        at = _last_of_days(history.published[history.published > start] - float(start))
        told_at, told_of = np.repeat(at, len(chosen)), np.tile(np.arange(len(chosen)), len(at))
    elif kind == "none":
        told_at, told_of = times[:0], who[:0]
    heard = (told_at > born[told_of]) & (told_at < gone[told_of])
    return _Part(directory, born, gone, changes, told_at[heard], told_of[heard], SOURCES.get(kind, ""))


def _last_of_days(at: np.ndarray) -> np.ndarray:
    """For each day, return the last of the times `at` that are on this day."""
    at = np.sort(at)
    return at[np.append(np.diff(at // DAY) > 0, True)] if len(at) else at


def _told_of_directories(
    history: SiteHistory, chosen: np.ndarray, start: int, counts: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the times and pages of signals. When a page changes, all chosen pages of its directory get a signal."""
    moved = np.unique(np.stack([history.time[counts] - start, history.dir[history.page[counts]]]), axis=1)
    told = [
        (at, page)
        for page, name in enumerate(history.dir[chosen].tolist())
        for at in moved[0, moved[1] == name].tolist()
    ]
    at, pages = zip(*told, strict=True) if told else ((), ())
    return np.array(at, dtype=float), np.array(pages, dtype=np.int64)


def _joined(kept: list[tuple[str, _Part]], arm: str, days: int, seed: int) -> World:
    sizes = [len(part.born) for _, part in kept]
    firsts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    directories = np.cumsum([0, *(int(part.directory.max()) + 1 for _, part in kept)]).tolist()
    total = firsts[-1]
    importance = np.ones(total)
    if arm == "zipf":
        importance = 1.0 / (np.random.default_rng([seed, total]).permutation(total) + ZIPF_OFFSET)
    return World(
        arm=arm,
        polite=arm == "polite",
        sites=tuple(name for name, _ in kept),
        site=np.repeat(np.arange(len(kept)), sizes),
        directory=np.concatenate(
            [part.directory + first for (_, part), first in zip(kept, directories, strict=False)]
        ),
        born=np.concatenate([part.born for _, part in kept]),
        died=np.concatenate([part.died for _, part in kept]),
        importance=importance,
        changes=[times for _, part in kept for times in part.changes],
        signals=_by_day([(part, first) for (_, part), first in zip(kept, firsts, strict=False)], days),
        sources=tuple(part.source for _, part in kept),
        days=days,
    )


def _by_day(parts: list[tuple[_Part, int]], days: int) -> list[Heard]:
    """Return the signals that are read at the end of each day.

    If a page has several signals on a day, only the one with the latest date is kept.
    """
    at = np.concatenate([part.told_at for part, _ in parts])
    pages = np.concatenate([part.told_of + first for part, first in parts])
    day = np.minimum(at // DAY, days - 1).astype(np.int64)
    order = np.lexsort((at, pages, day))
    at, pages, day = at[order], pages[order], day[order]
    later = np.ones(len(at), dtype=bool)
    later[:-1] = (np.diff(day) > 0) | (np.diff(pages) != 0)
    at, pages, day = at[later], pages[later], day[later]
    edges = np.searchsorted(day, np.arange(days + 1)).tolist()
    return [Heard(pages[a:b], at[a:b]) for a, b in zip(edges[:-1], edges[1:], strict=True)]


# -- playing


def play(world: World, policy: Policy, rate: float, calibration: Calibration | None = None) -> GameResult:
    """Let the policy spend `rate` fetches per second on the world.

    `calibration` samples the probabilities that the policy states.

    Events of the same instant are processed in this order: births, the reading of
    signals, the fetch.
    """
    horizon, warm = world.horizon, WARMUP * world.horizon
    copies = Copies(world.changes, warm, np.minimum(world.died, horizon).tolist())
    copies.last = world.born.tolist()
    coming = sorted(((at, page) for page, at in enumerate(world.born.tolist())), reverse=True)
    day, gap = 0, world.gap(rate)
    sites = world.site.tolist()
    fetches = changed = gone = idle = 0
    for tick in range(int(rate * horizon)):
        now = (tick + 0.5) / rate
        while coming and coming[-1][0] <= now:
            at, page = coming.pop()
            policy.add(page, at)
        while (day + 1) * DAY <= now:
            heard = world.signals[day]
            day += 1
            for page, at in zip(heard.pages.tolist(), heard.at.tolist(), strict=True):
                policy.note_change(page, world.sources[sites[page]], at, day * DAY)
        if calibration is not None:
            calibration.sample(copies.seen, now)
        page = policy.claim_next(now)
        if page < 0:
            idle += 1
            continue
        fetches += 1
        if now >= world.died[page]:
            gone += 1
            policy.remove(page, now)
        else:
            news = copies.keep(page, now)
            changed += news
            policy.record_outcome(page, now, news)
        if gap:
            policy.block(sites[page], now + gap)
    there = np.maximum(np.minimum(world.died, horizon) - np.maximum(world.born, warm), 0.0)
    return GameResult(np.array(copies.end()), there, fetches, changed, gone, idle)
