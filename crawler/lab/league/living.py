"""The living league: new pages are unknown until a hub that shows them is fetched.

    World --grow(rule)--> LivingWorld --play(finder, rate)--> LivingResult

`lab/league/README.md`, "The living league" describes the rules by which hubs are made. A hub changes when its
list changes. All pages and hubs that exist at the start are crawled at time 0. Fetches of hubs, first fetches of
pages, and refreshes share one budget, and are spread evenly over the time.

After the first fetch of a URL, the hub that was the first to show the URL gets a credit: 1 if there was a
page, and 0 if the page was gone. The links in the first copy of a hub earn no credit, because their age is
unknown.
"""

import math
from bisect import bisect_right
from collections import deque

import msgspec
import numpy as np

from crawler.errors import UsageError
from crawler.frontier.refresh.page_facts import SITE_LIST_LINKS
from crawler.lab.copies import Copies
from crawler.lab.league.world import DAY, WARMUP, GameResult, Policy, World
from crawler.wording import not_one_of

RULES = ("dir", "map", "newest")
NEWS = "news"
NEWEST = 20  # number of pages that a front page shows
# The news site: the number of sections, the number of static pages, articles per day, and the length of the
# simulation in days.
SECTIONS, STATIC, ARTICLES_A_DAY, NEWS_DAYS = 10, 600, 4.2, 150
STATIC_DAYS, ARTICLE_DAYS = 300.0, 60.0  # mean days between two changes of a page
NEWS_RATE = 16.0  # fetches per day at the budget 1x


class Hub(msgspec.Struct, frozen=True):
    """The nodes that a hub shows, as pairs (birth, node) in order of birth.

    If `most` is not 0, the hub shows only the newest `most` of the nodes that exist.
    """

    births: tuple[tuple[float, int], ...]
    most: int = 0
    # further nodes, which the hub always shows; they do not count towards `most`
    always: tuple[tuple[float, int], ...] = ()
    of_site: bool = False  # the hub is the front page or the sitemap of a site


class LivingWorld(World, frozen=True, kw_only=True):
    """A world of nodes: n pages, followed by their hubs. Its arm is the rule by which the hubs were made."""

    pages: int
    hubs: list[Hub]
    budget_unit: float  # fetches per second at the budget 1x

    @property
    def change_rate(self) -> float:
        return self.budget_unit

    def is_hub(self, node: int) -> bool:
        return node >= self.pages

    def __repr__(self) -> str:
        return f"LivingWorld({self.arm}: {len(self.sites)} sites, {self.pages} pages, {len(self.hubs)} hubs)"


class NewFirst:
    """A player of the living league: a policy for known pages, and a first-in first-out queue of new URLs.

    Up to a given share of the fetches goes to URLs of the queue. `claim_next` may return such a URL. Then the
    caller calls `add` if the URL is a page.
    """

    def __init__(self, policy: Policy, share: float = 1.0) -> None:
        self.policy = policy
        self._share, self._credit = share, 0.0
        self._new: deque[int] = deque()
        self.add, self.record_outcome, self.remove = policy.add, policy.record_outcome, policy.remove
        self.expect, self.credit = policy.expect, policy.credit

    def find(self, node: int, now: float) -> None:
        """Record that the URL of a page has become known at `now`."""
        self._new.append(node)

    def claim_next(self, now: float) -> int:
        self._credit = min(self._credit + self._share, 1.0)
        # a tolerance is needed because the sum of ten tenths, as floats, is less than 1
        if self._new and self._credit > 1.0 - 1e-9:
            self._credit -= 1.0
            return self._new.popleft()
        node = self.policy.claim_next(now)
        return self._new.popleft() if node < 0 and self._new else node


class LivingResult(GameResult, frozen=True):
    """The result of a game, in which `current` and `there` are those of pages.

    `hubs_fresh` is the share of the hubs' time in which their copies were current. `born` is the number of pages
    that were born after the warm-up. For each such page that was fetched, `delays` holds the seconds between its
    birth and its first fetch. `hub_fetches` is the number of `fetches` that went to hubs.
    """

    hubs_fresh: float
    delays: np.ndarray
    born: int
    hub_fetches: int
    new_fetches: int


# -- hubs by rule


def grow(world: World, rule: str) -> LivingWorld:
    """Return the world with hubs added.

    Raises:
        UsageError: unknown rule.
    """
    if rule not in RULES:
        raise UsageError(f"--hubs: {not_one_of(repr(rule), RULES)}")
    births: list[list[tuple[float, int]]] = [[] for _ in world.sites]
    for at, page in sorted(zip(world.born.tolist(), range(len(world)), strict=True)):
        births[int(world.site[page])].append((at, page))
    made = _Made(world)
    for site, pages in enumerate(births):
        if rule == "map":
            made.add(site, Hub(tuple(pages), of_site=True))
            continue
        listings = []
        folders: dict[int, list[tuple[float, int]]] = {}
        for at, page in pages:
            folders.setdefault(int(world.directory[page]), []).append((at, page))
        for folder, inside in folders.items():
            listings.append((inside[0][0], made.add(site, Hub(tuple(inside)), folder)))
        root = (
            Hub(tuple(pages), NEWEST, tuple(sorted(listings)), of_site=True)
            if rule == "newest"
            else Hub(tuple(sorted(listings)), of_site=True)
        )
        made.add(site, root)
    return made.world(rule)


class _Made:
    """The hubs made so far, which are numbered after the pages."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._hubs: list[Hub] = []
        self._sites: list[int] = []
        self._directories: list[int] = []
        self._changes: list[list[float]] = []
        self._next_directory = int(world.directory.max()) + 1

    def add(self, site: int, hub: Hub, directory: int = -1) -> int:
        """Add a hub and return the number of its node. A hub without a directory gets a new directory."""
        if directory < 0:
            directory, self._next_directory = self._next_directory, self._next_directory + 1
        self._hubs.append(hub)
        self._sites.append(site)
        self._directories.append(directory)
        self._changes.append(_changes_of(hub, self._world))
        return len(self._world) + len(self._hubs) - 1

    def world(self, rule: str) -> LivingWorld:
        base, count = self._world, len(self._hubs)
        shown = {node for hub in self._hubs for _, node in hub.births + hub.always}
        # No hub links to a root, so a root is assumed to exist from the start. A listing exists since the
        # birth of its first page.
        born = [
            min(hub.births)[0] if len(base) + number in shown else 0.0
            for number, hub in enumerate(self._hubs)
        ]
        return LivingWorld(
            arm=rule,
            pages=len(base),
            sites=base.sites,
            site=np.append(base.site, self._sites),
            directory=np.append(base.directory, self._directories),
            born=np.append(base.born, born),
            died=np.append(base.died, np.full(count, np.inf)),
            importance=np.append(base.importance, np.full(count, base.importance.mean())),
            changes=base.changes + self._changes,
            hubs=self._hubs,
            signals=[],
            sources=base.sources,
            days=base.days,
            budget_unit=base.change_rate,
        )


def _changes_of(hub: Hub, world: World) -> list[float]:
    """Return the times at which the hub's list changes: births and deaths of the nodes that it shows."""
    horizon = world.horizon
    times = {at for at, _ in hub.births + hub.always if 0.0 < at < horizon}
    for place, (_, node) in enumerate(hub.births):
        if node >= len(world) or not world.died[node] < horizon:
            continue
        at = float(world.died[node])
        newer = sum(1 for birth, other in hub.births[place + 1 :] if birth <= at < world.died[other])
        if not hub.most or newer < hub.most:
            times.add(at)
    return sorted(times)


def news(seed: int) -> LivingWorld:
    """Return a simulated news site: 600 static pages, 4.2 articles a day, and 10 sections that show their 20 newest.

    At the start, each section shows static pages. The activity of the sections is log-normal. The budget 1x is
    16 fetches a day. Fetching each article once takes a quarter of this budget.
    """
    rng = np.random.default_rng(seed)
    horizon = NEWS_DAYS * DAY
    count = int(rng.poisson(ARTICLES_A_DAY * NEWS_DAYS))
    activity = rng.lognormal(0.0, 1.0, SECTIONS)
    section = rng.choice(SECTIONS, count, p=activity / activity.sum())
    born = np.append(np.zeros(STATIC), np.sort(rng.random(count)) * horizon)
    rates = np.append(
        rng.lognormal(-0.5, 1.0, STATIC) / (STATIC_DAYS * DAY), np.full(count, 1.0 / (ARTICLE_DAYS * DAY))
    )
    pages = STATIC + count
    changes = [
        np.sort(at + rng.exponential(1.0 / rate, 100).cumsum()) for at, rate in zip(born, rates, strict=True)
    ]
    articles = list(zip(born[STATIC:].tolist(), range(STATIC, pages), section.tolist(), strict=True))
    hubs = [
        Hub(
            tuple((0.0, page) for page in range(number, STATIC, SECTIONS)[-NEWEST:])
            + tuple((at, page) for at, page, own in articles if own == number),
            NEWEST,
        )
        for number in range(SECTIONS)
    ]
    size = pages + SECTIONS
    return LivingWorld(
        arm=NEWS,
        pages=pages,
        sites=("news",),
        site=np.zeros(size, dtype=np.int64),
        directory=np.concatenate([np.arange(STATIC) % SECTIONS, section, np.arange(SECTIONS)]),
        born=np.append(born, np.zeros(SECTIONS)),
        died=np.full(size, np.inf),
        importance=np.ones(size),
        changes=[at[at < horizon].tolist() for at in changes]
        + [[at for at, _ in hub.births if at > 0.0] for hub in hubs],
        hubs=hubs,
        signals=[],
        sources=("sitemap",),
        days=NEWS_DAYS,
        budget_unit=NEWS_RATE / DAY,
    )


# -- playing


def _expect_first(world: LivingWorld, policy: NewFirst) -> None:
    """Tell the policy, for each hub that exists at the start, the number of its nodes that no earlier hub shows.

    The hubs are taken in the order in which a crawl fetches them, with the root of a site first. This is the
    reverse of their order in `world.hubs`, where the root of a site is its last hub.
    """
    begin, found = (0.0, len(world)), set[int]()
    for number in reversed(range(len(world.hubs))):
        hub = world.hubs[number]
        births = hub.births[: bisect_right(hub.births, begin)]
        always = hub.always[: bisect_right(hub.always, begin)]
        links = {node for _, node in births[-hub.most :] + always}
        if world.born[world.pages + number] <= 0.0:
            policy.expect(world.pages + number, len(links - found) + SITE_LIST_LINKS * hub.of_site, 0.0)
        found |= links


def play(world: LivingWorld, policy: NewFirst, rate: float, *, told: bool = False) -> LivingResult:
    """Let the policy spend `rate` fetches per second. If `told`, births are announced and hubs are not fetched."""
    game = _Game(world, policy, told=told)
    game.begin()
    for tick in range(int(rate * world.horizon)):
        now = (tick + 0.5) / rate
        game.announce(now)
        node = policy.claim_next(now)
        if node < 0:
            game.idle += 1
        else:
            game.fetch(node, now)
    return game.result()


class _Game:
    """The state of a game: the nodes that the policy knows, their copies, and the counts for the result."""

    def __init__(self, world: LivingWorld, policy: NewFirst, *, told: bool) -> None:
        self._world, self._policy, self._told = world, policy, told
        size = self._size = len(world)
        self._warm = WARMUP * world.horizon
        self._copies = Copies(world.changes, self._warm, np.minimum(world.died, world.horizon).tolist())
        self._born, self._died = world.born.tolist(), world.died.tolist()
        self._known, self._via = [False] * size, [-1] * size
        self._delays: list[float] = []
        # for each hub, the number of its nodes that were born before its last fetch
        self._shown = [0] * len(world.hubs)
        self._listed = [0] * len(world.hubs)
        born = enumerate(self._born[: world.pages])
        self._coming = sorted(((at, node) for node, at in born if at > 0.0), reverse=True) if told else []
        self._fetches = self._hub_fetches = self._new_fetches = self._changed = self._gone = self.idle = 0

    def begin(self) -> None:
        """Copy the nodes that exist at the start."""
        for node in range(self._size):
            if self._born[node] <= 0.0 and not (self._told and self._world.is_hub(node)):
                self._known[node] = True
                self._copies.keep(node, 0.0)
                self._policy.add(node, 0.0)
        for number, hub in enumerate(self._world.hubs):
            self._shown[number] = bisect_right(hub.births, (0.0, self._size))
            self._listed[number] = bisect_right(hub.always, (0.0, self._size))
        if not self._told:
            _expect_first(self._world, self._policy)

    def announce(self, now: float) -> None:
        """Tell the policy of the pages that were born up to now."""
        while self._coming and self._coming[-1][0] <= now:
            at, node = self._coming.pop()
            self._known[node] = True
            self._policy.find(node, at)

    def fetch(self, node: int, now: float) -> None:
        """Fetch a node, and tell the policy the outcome."""
        is_gone, is_new = now >= self._died[node], math.isinf(self._copies.last[node])
        self._fetches += 1
        self._hub_fetches += self._world.is_hub(node)
        self._gone += is_gone
        self._new_fetches += is_new
        if is_new:
            self._fetch_new(node, is_gone, now)
        elif is_gone:
            self._policy.remove(node, now)
        else:
            changed = self._copies.keep(node, now)
            self._changed += changed
            self._policy.record_outcome(node, now, changed)
        if self._world.is_hub(node):
            self._show(node, is_new, now)

    def _fetch_new(self, node: int, is_gone: bool, now: float) -> None:
        if not is_gone:
            self._copies.keep(node, now)
            self._policy.add(node, now)
            if self._born[node] >= self._warm and not self._world.is_hub(node):
                self._delays.append(now - self._born[node])
        if self._via[node] >= 0:
            self._policy.credit(self._via[node], float(not is_gone), now)

    def _show(self, node: int, first: bool, now: float) -> None:
        """Inform the policy of the unknown pages that the hub shows.

        Pages in the first copy of a hub earn no credit.
        """
        number, end = node - self._world.pages, (now, self._size)
        hub = self._world.hubs[number]
        begin, self._shown[number] = self._shown[number], bisect_right(hub.births, end)
        new = hub.births[begin : self._shown[number]]
        if hub.most:
            alive = [pair for pair in hub.births[: self._shown[number]] if self._died[pair[1]] > now]
            new = tuple(alive[-hub.most :])
        before, self._listed[number] = self._listed[number], bisect_right(hub.always, end)
        shown = new + hub.always[before : self._listed[number]]
        unknown = [other for _, other in shown if not self._known[other] and self._died[other] > now]
        for other in unknown:
            self._known[other], self._via[other] = True, -1 if first else node
            self._policy.find(other, now)
        if first:
            self._policy.expect(node, len(unknown) + SITE_LIST_LINKS * hub.of_site, now)

    def result(self) -> LivingResult:
        world, horizon, warm = self._world, self._world.horizon, self._warm
        pages, born = world.pages, world.born[: world.pages]
        current = np.array(self._copies.end())
        there = np.maximum(np.minimum(world.died, horizon) - np.maximum(world.born, warm), 0.0)
        return LivingResult(
            current=current[:pages],
            there=there[:pages],
            hubs_fresh=float(current[pages:].sum() / max(there[pages:].sum(), 1e-9)),
            delays=np.array(self._delays),
            born=int(((born >= warm) & (born < horizon)).sum()),
            fetches=self._fetches,
            changed=self._changed,
            hub_fetches=self._hub_fetches,
            new_fetches=self._new_fetches,
            gone=self._gone,
            idle=self.idle,
        )
