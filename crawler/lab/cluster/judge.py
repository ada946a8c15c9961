"""Judges a run by the web's log and the WARC files, by the rules of `judge_notes.RULES`.

The judge uses few of the numbers that the crawler itself reports (`README.md`).
"""

import gzip
import math
import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import msgspec

from crawler.lab.cluster import act_rules, stored_rules
from crawler.lab.cluster.cluster import Cluster
from crawler.lab.cluster.cluster_settings import START, Observed
from crawler.lab.cluster.fetching import WebAsk
from crawler.lab.cluster.judge_notes import TRIES, Notes
from crawler.lab.cluster.population import STOPPED
from crawler.lab.cluster.synthetic_web import DATA, MISSING_EVERY, SITEMAP, SyntheticWeb, is_subresource

SLACK = 1e-3  # tolerance in seconds, because clocks and floating-point sums are not exact
RATE_WINDOW = 20.0  # seconds over which the rate is measured
# the rate may be exceeded by this factor, because shares change while messages are on the way
RATE_SLACK = 1.15
CLONE_MAX = 120.0  # if two processes have the same name, one of them must stop within this many seconds
# faults after which a process may wait for processes that have ended
CUT_OFF = ("partition", "one-way", "stop", "loss", "reset", "rerun")
# faults that prevent messages from reaching a process
AWAY = ("kill", "power", "partition", "one-way", "stop", "clock", "loss")
# maximum seconds between two requests; requests to a host that is down are repeated after 60, 120 and 240
# seconds
STALL_MAX = 900.0
STALE_AFTER = 4.0  # the configured maximum age may be exceeded by this factor
_RECORD = re.compile(rb"<p>(page|shown) (\d+) version (\d+)\.|<p>(data) of (\d+)\.")


class RunVerdict(msgspec.Struct, frozen=True):
    """The number of violations of each broken rule with an example of each, and the measurements of the run."""

    found: dict[str, int]
    examples: dict[str, str]
    pages: int
    requests: int
    kills: int
    refetched: int
    freshness: float
    digest: str

    @property
    def flawless(self) -> bool:
        return not self.found


def judge(cluster: Cluster) -> RunVerdict:
    """Return the verdict on the run of a cluster. The run must have ended."""
    settings, web, rows, observed = cluster.settings, cluster.web, cluster.log.rows, cluster.observed
    notes = Notes()
    cloned = bool(observed.cloned_at or observed.restored)
    asked = by_page(web, rows)
    over = observed.ended or settings.refresh
    if over and not cloned:
        # pages that were linked after this instant need not have been requested yet
        since = math.inf if observed.ended else START + observed.elapsed / 2
        _judge_pages(notes, cluster, asked, since)
    if observed.ended and cloned:
        _judge_survivors(notes, cluster, asked)
    if not observed.ended and not settings.length:
        notes.add("no end", f"after {observed.elapsed:.0f} s and {len(observed.lives)} lives")
    if observed.visits and not any(fault.kind in CUT_OFF for fault in observed.done):
        notes.add("left behind", f"at {observed.visits[0]:.0f} s", len(observed.visits))
    refetched = 0 if settings.refresh or cloned else _judge_refetches(notes, cluster, asked)
    if not settings.refresh and not cloned:
        _judge_stops(notes, cluster, asked)
    _judge_hosts(notes, cluster)
    _judge_rate(notes, cluster)
    for before, after in pairwise(rows):
        if after.at - before.at > STALL_MAX and not settings.refresh:
            notes.add("stalled", f"{after.at - before.at:.0f} s before {after.host}{after.path}")
    for row in rows:
        if row.path.startswith("/private/"):
            notes.add("forbidden", f"{row.host}{row.path} at {row.at - START:.1f}")
    act_rules.judge_commands(notes, cluster)
    act_rules.judge_limits(notes, cluster)
    act_rules.judge_tries(notes, cluster)
    # If a disk was copied, restored or lost, links may have been recovered. After a recovery, a page may be
    # found and fetched again at another depth. But links that were recovered from this page still have the
    # earlier depth of the page. So the stored records of such a run are not judged.
    if not cloned:
        announced = {act.target for act in observed.acts if act.kind in act_rules.SIGNALS}
        stored_rules.judge_stored(notes, web, cluster.population.stored, announced)
    if settings.refresh:
        act_rules.judge_signals(notes, cluster, asked)
        _judge_age(notes, cluster, asked)
    for text in observed.problems:
        notes.add("miscounted", text)
    for text in observed.unexpected:
        notes.add("bug", text)
    return RunVerdict(
        dict(notes.found),
        notes.examples,
        pages=sum(bool(each) for each in asked),
        requests=len(rows),
        kills=sum(life.killed for life in observed.lives),
        refetched=refetched,
        freshness=freshness(web, asked, START + observed.elapsed),
        digest=cluster.log.digest(),
    )


def by_page(web: SyntheticWeb, rows: Sequence[WebAsk]) -> list[list[WebAsk]]:
    """Return the requests for each page, whatever their outcome."""
    found: list[list[WebAsk]] = [[] for _ in web.host_of]
    for row in rows:
        place = row.path[1:]
        if place.isdigit() and int(place) < len(pages := web.hosts[web.number[row.host]].pages):
            found[pages[int(place)]].append(row)
    return found


def _has(answers: Sequence[WebAsk], since: float = math.inf) -> bool:
    return any(row.status in (200, 304) and row.at < since for row in answers)


def _led_to(cluster: Cluster, asked: list[list[WebAsk]]) -> list[Sequence[WebAsk]]:
    """Return, for each page, the requests whose answers link to it. These are requests for its parent or sitemap.

    If the parent shows its links only in a browser, the last request for the data of the parent is returned
    instead.
    """
    web, rows = cluster.web, cluster.log.rows
    maps: dict[str, list[WebAsk]] = {host.name: [] for host in web.hosts}
    for row in rows:
        if row.path == SITEMAP:
            maps[row.host].append(row)
    data = {(row.host, row.path): row for row in rows if row.path.startswith(DATA)}

    def of_parent(parent: int) -> list[WebAsk]:
        if not web.is_scripted(parent):
            return asked[parent]
        row = data.get((web.hosts[web.host_of[parent]].name, f"{DATA}{web.place[parent]}"))
        return [row] if row is not None else []

    return [
        maps[web.hosts[web.host_of[page]].name] if web.is_orphan(page) else of_parent(web.parent[page])
        for page in range(len(asked))
    ]


def _judge_pages(notes: Notes, cluster: Cluster, asked: list[list[WebAsk]], since: float) -> None:
    """Record a violation for each lost page that was linked before `since`.

    Also record one for each answered page that is not stored exactly once.
    """
    web, rows, led = cluster.web, cluster.log.rows, _led_to(cluster, asked)
    exempt = act_rules.exempt(cluster.observed)
    for page, answers in enumerate(asked):
        parent_had = page == 0 or _has(led[page], since)
        given_up = sum(row.status != 200 for row in answers) >= TRIES
        # the endless calendar of the trap may have used up the budget of the host
        parked = web.hosts[web.host_of[page]].trap
        if parent_had and not _has(answers) and not given_up and not parked and web.url(page) not in exempt:
            notes.add("lost", f"page {page}, {web.url(page)}, requested {len(answers)} times")
    paths = {(row.host, row.path) for row in rows}
    for page, answers in enumerate(asked):
        if page % MISSING_EVERY == 7 and _has(answers, since):
            name = web.hosts[web.host_of[page]].name
            if (name, f"/missing/{page}") not in paths:
                notes.add("lost", f"{name}/missing/{page}")
    for host in web.hosts:
        answered = any(_has(asked[page], since) for page in host.pages)
        if host.sitemap and answered and (host.name, SITEMAP) not in paths:
            notes.add("lost", f"{host.name}{SITEMAP}")
    found = Counter[tuple[str, int, int]]()
    for machine in cluster.population.machines:
        for path in sorted(machine.folder.rglob("warc/*.gz*")):
            records, whole = _records(path)
            found.update(records)
            if not whole:
                notes.add("torn", path.name)
    stored = {(page, version): count for (kind, page, version), count in found.items() if kind == "page"}
    pages_stored = {page for page, _ in stored}
    if web.spec.scripted:
        _judge_renderings(notes, cluster, found, pages_stored)
    for page, answers in enumerate(asked):
        withdrawn = web.url(page) in exempt
        if withdrawn and page in pages_stored and _is_erased(cluster.observed, web.url(page)):
            notes.add("not heeded", f"{web.url(page)} is still stored")
        if _has(answers) and page not in pages_stored and not withdrawn:
            notes.add("unstored", f"page {page}")
    for (page, version), count in stored.items():
        if count > 1:
            notes.add("stored twice", f"page {page} version {version}: {count} times")


def _judge_renderings(
    notes: Notes, cluster: Cluster, found: Counter[tuple[str, int, int]], pages_stored: set[int]
) -> None:
    """Record a violation for each stored page without a DOM.

    Also record one for each scripted page whose request for data was answered, if the data is not stored.
    """
    web, rows = cluster.web, cluster.log.rows
    shown = {page for kind, page, _ in found if kind == "shown"}
    data = {page for kind, page, _ in found if kind == "data"}
    answered = {row.page for row in rows if row.path.startswith(DATA) and row.status == 200}
    for page in sorted(pages_stored):
        if page not in shown:
            notes.add("unrendered", f"page {page}, {web.url(page)}: no DOM")
        if web.is_scripted(page) and page in answered and page not in data:
            notes.add("unrendered", f"page {page}, {web.url(page)}: its data is not stored")


def _is_erased(observed: Observed, url: str) -> bool:
    return any(act.kind == "withdraw" and act.target == url for act in observed.acts)


def _judge_survivors(notes: Notes, cluster: Cluster, asked: list[list[WebAsk]]) -> None:
    """Record a violation for each lost link that a surviving process found, unless the owner of the target has a clone.

    When a process stops because a copy of its machine runs, the data stored only on the disk of the stopped
    process is lost. When a disk is restored from a backup, nothing is lost: the process on this disk fetches
    its own pages again, and the peers recover the links that they had sent to it.
    """
    web, survivors = cluster.web, cluster.observed.survivors
    copied = {machine.name for machine in cluster.population.machines if machine.label != machine.name}
    led = _led_to(cluster, asked)
    for page, answers in enumerate(asked):
        if page == 0 or _has(answers) or web.hosts[web.host_of[page]].trap:
            continue
        of_survivors = [row for row in led[page] if survivors.get(row.name) == row.machine]
        given_up = sum(row.status != 200 for row in answers) >= TRIES
        if _has(of_survivors) and not given_up and cluster.population.owner(web.url(page)) not in copied:
            notes.add("lost", f"page {page}, {web.url(page)}, requested {len(answers)} times")


def _records(path: Path) -> tuple[Iterator[tuple[str, int, int]], bool]:
    """Read the records of a WARC file.

    Return an iterator over (kind, page, version), and whether the file can be read to its end.

    The kind is "page" for an answer, "shown" for a DOM, and "data" for the data of a page. The version of
    data is 0.
    """
    data, whole = b"", True
    try:
        data = gzip.decompress(path.read_bytes())
    except (OSError, EOFError, ValueError):
        whole = False
    return (
        ((found[1] or found[4]).decode(), int(found[2] or found[5]), int(found[3] or 0))
        for found in _RECORD.finditer(data)
    ), whole


def _judge_refetches(notes: Notes, cluster: Cluster, asked: list[list[WebAsk]]) -> int:
    """Return the number of repeated fetches: for each page, the answers with status 200 after the first.

    Each kill of a process explains a limited number of repeated fetches. Record a violation for the repeated
    fetches beyond this number.
    """
    kills = sorted(START + life.at for life in cluster.observed.lives if life.how not in ("done", "patience"))
    again = Counter[int]()
    for answers in asked:
        good = [row.at for row in answers if row.status == 200]
        for before in good[:-1]:
            again[bisect_right(kills, before)] += 1
    for number, count in again.items():
        allowed = 2 * cluster.settings.concurrency if number < len(kills) else 0
        if count > allowed:
            where = f"after kill {number} of {len(kills)}: {count}, not {allowed}"
            notes.add("fetched too often", where, count - allowed)
    return again.total()


def _judge_stops(notes: Notes, cluster: Cluster, asked: list[list[WebAsk]]) -> None:
    """Record a violation for each page fetched again although it had been answered before TERM stopped the process."""
    told = cluster.observed.told_to_stop
    stopped = {life.life: START + told[life.life] for life in cluster.observed.lives if life.how == STOPPED}
    for page, answers in enumerate(asked):
        good = [row for row in answers if row.status == 200]
        for before in good[:-1]:
            if before.end < stopped.get(before.life, 0.0):
                notes.add(
                    "fetched too often", f"page {page}, answered before its process was stopped by TERM"
                )


def _judge_hosts(notes: Notes, cluster: Cluster) -> None:
    """Record a violation for each request to a host by a second process or too soon after another request.

    A request ends when its process ends, because the kernel closes the connections. After a kill, the gap journal
    gives the gap of each host. After any other end, only the minimum gap is required. If a fault has copied a
    process to another machine, the gaps between requests are judged for each machine alone.
    """
    config = cluster.population.config.politeness
    delay, factor, most = float(config.delay), config.delay_factor, float(config.delay_max)
    ends = {
        life.life: START + life.at
        for life in cluster.observed.lives
        if life.how == STOPPED or (life.killed and not life.how.startswith("power"))
    }
    # for each machine, the lives after which its gap journal may lack the last requests
    unnoted: dict[str, list[int]] = {}
    for life in cluster.observed.lives:
        if not life.how.startswith("kill"):
            unnoted.setdefault(life.machine, []).append(life.life)
    last: dict[tuple[str, str], WebAsk] = {}
    busy: dict[tuple[str, str], float] = {}  # seconds for which a page and its subresources keep a host busy
    names: dict[tuple[str, int], str] = {}  # the owner of each host after each number of reshards
    resharded = cluster.observed.resharded
    for row in sorted(cluster.log.rows, key=lambda row: row.at):
        place = row.host, row.machine if cluster.observed.cloned_at else ""
        before = last.get(place)
        last[place] = row
        took = busy.get(place, 0.0)
        within = is_subresource(row.path) and before is not None and row.life == before.life
        busy[place] = row.end - row.at + (took if within else 0.0)
        where = f"{row.host}{row.path} at {row.at - START:.2f}"
        owner = names.setdefault((row.host, bisect_right(resharded, row.at - START)), row.name)
        if owner != row.name:
            notes.add("two owners", f"{where}: {owner}, then {row.name}")
        if before is None:
            continue
        end = min(before.end, ends.get(before.life, math.inf))
        took -= before.end - end
        is_noted = not any(before.life <= life < row.life for life in unnoted.get(row.machine, ()))
        known = row.machine == before.machine and is_noted
        gap = min(max(delay, factor * took), most) if known else delay
        gap = 0.0 if within else gap  # no gap is required between the requests for subresources of a page
        if row.at < end - SLACK:
            notes.add("impolite", f"{where}: during the answer to {before.path}")
        elif row.at < end + gap - SLACK and before.status:
            notes.add("impolite", f"{where}: {row.at - end:.2f} s after {before.path}, not {gap:.2f}")
    if cluster.observed.cloned_at:
        _judge_copies(notes, cluster)


def _judge_copies(notes: Notes, cluster: Cluster) -> None:
    """Record a violation for each request of a process that should have stopped because of a newer process.

    When a process starts on another machine under the same name, the older process must soon stop.
    """
    rows, observed = cluster.log.rows, cluster.observed
    lives = {row.life: row for row in rows}
    ends = {end.life: end.at for end in observed.lives}
    for row in rows:
        for other in lives.values():
            began = observed.begun.get(other.life, 0.0)
            at = row.at - START
            if (
                other.name == row.name
                and other.machine != row.machine
                and observed.begun.get(row.life, 0.0) < began
                and began + _hidden(observed, began, at) < at < ends.get(other.life, math.inf)
            ):
                notes.add(
                    "two owners",
                    f"{row.host}{row.path} at {at:.2f}: {row.machine}, though {other.machine} began at {began:.2f}",
                )


def _hidden(observed: Observed, since: float, until: float) -> float:
    """Return the seconds for which two processes with the same name are allowed to run at once.

    This is `CLONE_MAX`, plus the duration of each fault that keeps messages from a process during this time.
    """
    away = (
        fault.length
        for fault in observed.done
        if fault.kind in AWAY and fault.at < until and fault.at + fault.length > since
    )
    return CLONE_MAX + sum(away)


def _judge_rate(notes: Notes, cluster: Cluster) -> None:
    """Record a violation for each window with more requests than the rate of the whole crawl allows."""
    settings, rows = cluster.settings, cluster.log.rows
    if not settings.rate:
        return
    asks = sorted(rows, key=lambda row: row.at)
    processes = max(settings.processes, len({row.name for row in rows}))  # a reshard may add processes
    allowed = settings.rate * RATE_WINDOW * RATE_SLACK
    first = 0
    for place, row in enumerate(asks):
        while asks[first].at < row.at - RATE_WINDOW:
            first += 1
        window = asks[first : place + 1]
        # each start of a process allows one more request
        if len(window) > allowed + max(processes, len({each.life for each in window})):
            notes.add("unfair rate", f"{len(window)} in {RATE_WINDOW:g} s until {row.at - START:.1f}")


def _judge_age(notes: Notes, cluster: Cluster, asked: list[list[WebAsk]]) -> None:
    """Record a violation for each known page whose last request is much older than the maximum age of copies."""
    most = STALE_AFTER * float(cluster.population.config.refresh.max_age)
    end = START + cluster.observed.elapsed
    if not most or end - START < 2 * most:
        return
    for page, answers in enumerate(asked):
        if _has(answers) and end - answers[-1].at > most:
            notes.add("stale", f"{cluster.web.url(page)}: not requested for {end - answers[-1].at:.0f} s")


def freshness(web: SyntheticWeb, asked: list[list[WebAsk]], end: float, *, since: float = 0.0) -> float:
    """Return the share of the pages' total time in which the last copy was current.

    The time of a page begins with its first answer or at `since`, whichever is later.
    """
    current = whole = 0.0
    for page, answers in enumerate(asked):
        good = [row for row in answers if row.status in (200, 304)]
        if not good:
            continue
        whole += end - max(good[0].at, since)
        until = [*(row.at for row in good[1:]), end]
        for row, replaced in zip(good, until, strict=True):
            current += max(0.0, min(web.current_until(page, row.version), replaced) - max(row.at, since))
    return current / whole if whole else 1.0
