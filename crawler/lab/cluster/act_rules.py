"""The judge's rules about acts of the operator and about limits, which are checked in the web's log."""

import math
from collections import Counter, deque
from collections.abc import Sequence

from crawler.lab.cluster.cluster import Cluster
from crawler.lab.cluster.cluster_settings import START, Act, Observed
from crawler.lab.cluster.fetching import WebAsk
from crawler.lab.cluster.judge_notes import TRIES, Notes
from crawler.lab.cluster.synthetic_web import SITEMAP, is_subresource

HEARD_WITHIN = 1200.0  # a known page must be requested again within this number of seconds after a signal
ROBOTS = "/robots.txt"
SIGNALS = ("signal", "notice")  # acts that report a changed page


def exempt(observed: Observed) -> set[str]:
    """Return the URLs of retired and withdrawn pages.

    Retired pages need not be fetched, and withdrawn pages need no copy.
    """
    return {act.target for act in observed.acts if act.kind in ("retire", "withdraw")}


def judge_commands(notes: Notes, cluster: Cluster) -> None:
    """Record a violation for each request that a block or a withdrawal forbids."""
    acts = [act for act in cluster.observed.acts if act.kind in ("block", "withdraw")]
    for row in cluster.log.rows if acts else ():
        at, url = row.at - START, f"http://{row.host}{row.path}"
        for act in acts:
            if act.kind == "block" and act.target == row.host and act.at < at < _lifted(acts, act):
                notes.add("not heeded", f"{url} at {at:.2f}, though blocked since {act.at:.2f}")
            if act.kind == "withdraw" and act.target == url and at > act.at:
                notes.add("not heeded", f"{url} at {at:.2f}, though withdrawn at {act.at:.2f}")


def _lifted(acts: Sequence[Act], block: Act) -> float:
    """Return the first instant after the start of `block` at which a block of the same host ended."""
    return min(act.until for act in acts if act.target == block.target and act.until > block.at)


def judge_signals(notes: Notes, cluster: Cluster, asked: list[list[WebAsk]]) -> None:
    """Record a violation for each known page that was not requested again after a signal."""
    web, observed = cluster.web, cluster.observed
    page_of = {web.url(page): page for page in range(len(asked))}
    for act in observed.acts:
        if act.kind not in SIGNALS or act.at + HEARD_WITHIN > observed.elapsed:
            continue
        answers = asked[page_of[act.target]]
        known = any(row.status == 200 and row.end < START + act.at for row in answers)
        if known and not any(act.at <= row.at - START <= act.at + HEARD_WITHIN for row in answers):
            notes.add("unheard", f"{act.target}, signalled at {act.at:.0f}")


def judge_limits(notes: Notes, cluster: Cluster) -> None:
    """Record a violation for each request beyond the largest limit so far.

    A lowered limit applies only to URLs found later. The limit of a process counts from the start of the
    process, because the process may have admitted URLs before its first request.
    """
    observed = cluster.observed
    if not observed.limits:
        return
    depths, known, most = cluster.web.depths(), dict[str, set[str]](), 0.0
    begun = deque(sorted((at, observed.limits.get(life, math.inf)) for life, at in observed.begun.items()))
    for row in sorted(cluster.log.rows, key=lambda row: row.at):
        while begun and begun[0][0] <= row.at - START:
            most = max(most, begun.popleft()[1])
        if row.path in (ROBOTS, SITEMAP) or is_subresource(row.path):
            continue
        where = f"{row.host}{row.path} at {row.at - START:.1f}"
        paths = known.setdefault(row.host, set())
        is_hop = f"/r{row.path[1:]}" in paths  # the target of a redirect does not count against the limit
        paths.add(row.path)
        if len(paths) > most and not is_hop:
            notes.add("over a limit", f"{where}: URL {len(paths)} of its host, the limit is {most:g}")
        if row.page >= 0 and depths[row.page] > most:
            notes.add("over a limit", f"{where}: depth {depths[row.page]}, the limit is {most:g}")


def judge_tries(notes: Notes, cluster: Cluster) -> None:
    """Record a violation for each page that always fails and was tried too often or given up too soon."""
    observed, rows = cluster.observed, cluster.log.rows
    tried = Counter(f"{row.host}{row.path}" for row in rows if row.path.startswith("/broken/") and row.status)
    voided = sum(life.killed for life in observed.lives)
    for url, count in tried.items():
        if count > TRIES + voided:
            notes.add("gave up", f"{url}: tried {count} times, with {voided} kills")
        elif count < TRIES and observed.ended and not observed.acts:
            notes.add("gave up", f"{url}: tried only {count} times")
