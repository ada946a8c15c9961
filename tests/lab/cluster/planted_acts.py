"""Bugs that can be planted and that affect commands of the operator, limits or stored records; see `planted.py`."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import msgspec

from crawler.change_signals import Signalled
from crawler.due import reshard as due_reshard
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts import politeness
from crawler.frontier.hosts.budget import Budget
from crawler.frontier.outcome_policy import OutcomePolicy
from crawler.frontier.pauses import HostBlocks
from crawler.frontier.share import Share
from crawler.lab.cluster import resharding
from crawler.lab.cluster.synthetic_web import WebSpec
from crawler.pages import erasure, page_cache
from crawler.pages import reshard as pages_reshard
from crawler.pages.captures import Original
from crawler.pages.page_cache import PageCache
from crawler.pages.segments import SegmentWriter
from crawler.pages.withdrawals import Withdrawals
from crawler.process.committing import commit_loop
from crawler.process.committing.commit_loop import CommitLoop
from crawler.process.exchange.agreed_end import AgreedEnd
from crawler.process.fetching import page_rendering
from crawler.process.live_services import LiveServices
from crawler.process.opening.process_views import ProcessViews
from crawler.process.process import Process
from crawler.process.results import link_policy
from crawler.process.results.result_processor import ResultProcessor
from crawler.process.results.signal_intake import SignalIntake
from crawler.records import Link, LinkFlag, Rendering
from crawler.storage.keys import HOST, PARKED, TODO
from crawler.storage.reshard import NewProcess
from crawler.upkeep.stored_links import StoredLinks
from tests.lab.cluster.plants import Patches, plant

HOUR = 3600.0


REFRESHING: dict[str, Any] = {
    "web": WebSpec(hosts=6, pages=40, change_rate=1 / HOUR, flaws=False, down=0.0, traps=0.0),
    "refresh": True,
    "length": 6 * HOUR,
    "rate": 0.02,
    "within": 5 * HOUR,
    "tree": {"splitter": {"heartbeat": 60.0, "silence_max": 300.0}, "refresh": {"max_age": 6 * HOUR}},
}
RESHARDS: dict[str, Any] = {"faults": ("reshard",), "count": 3}
BROKEN = WebSpec(hosts=12, pages=150, broken=True)
SCRIPTED = WebSpec(hosts=12, pages=150, scripted=True)
# the answers are slow, because the gap depends on the time that an answer takes
SLOW_SCRIPTED = WebSpec(hosts=12, pages=150, scripted=True, latency=0.5)


@plant(
    "a known end keeps its limits",
    faults=("limits",),
    count=3,
    web=WebSpec(hosts=4, pages=40, zipf=2.0, sitemaps=0.0, down=0.0, traps=0.0, flaws=False),
)
def limits_not_kept() -> Patches:
    """Bug: the stored end of a crawl is trusted even if the limits have changed since it was stored."""
    extent = AgreedEnd._extent
    return [(AgreedEnd, "_extent", lambda self: msgspec.structs.replace(extent(self), limits=""))]


@plant("raised limits unpark URLs", faults=("limits",))
def parked_for_good() -> Patches:
    return [(Intake, "unpark", lambda self: 0)]


@plant("a host's budget counts", faults=("limits",))
def budget_not_counted() -> Patches:
    return [(Budget, "accept", lambda self, slot, flags=0: None)]


@plant("the depth is limited", faults=("limits",))
def depth_unlimited() -> Patches:
    rule = Budget.rule

    def shallow(self: Budget, slot: int, depth: int, url: str, name: str, flags: int = 0) -> int:
        return rule(self, slot, 0, url, name, flags)

    return [(Budget, "rule", shallow)]


@plant("a link is one deeper than its page", faults=("kill",))
def depth_of_the_page() -> Patches:
    """Bug: links of every second page have the depth of the page itself.

    If the links of all pages had this bug, no depth limit would have any effect.
    """
    context = link_policy.LinkContext

    def flat(depth: int = 0, via: int = 0, *rest: Any, **more: Any) -> Any:
        return context(depth - (depth > 1 and via % 2), via, *rest, **more)

    return [(link_policy, "LinkContext", flat)]


@plant("a URL is tried three times", faults=(), web=BROKEN)
def tries_not_counted() -> Patches:
    """Bug: failed tries of a URL are never counted."""
    again = OutcomePolicy._again

    def uncounted(self: OutcomePolicy, host: Any, decision: Any) -> Any:
        host.busy[1].attempt = 0
        return again(self, host, decision)

    return [(OutcomePolicy, "_again", uncounted)]


@plant("a URL is tried three times", faults=(), web=BROKEN)
def one_try() -> Patches:
    return [(OutcomePolicy, "_again", OutcomePolicy._done)]


@plant("a block is durable", faults=("block", "kill", "power"))
def blocks_in_memory() -> Patches:
    return [(HostBlocks, "stage", lambda self, batch: None)]


@plant("an erasure ends no process", faults=("withdraw",))
def erasure_is_small() -> Patches:
    """Bug: the code reads the size of every change, but an erasure has no size."""
    return [(commit_loop, "Rewriting", Mock)]


@plant("erased bytes are overwritten", faults=("withdraw",))
def bytes_stay() -> Patches:
    return [(erasure, "overwrite", lambda folders, ranges: None)]


@plant("a withdrawn URL is not fetched", faults=("withdraw",), count=24)
def withdrawn_is_fetched() -> Patches:
    return [(Withdrawals, "stops", lambda self, url: False)]


@plant("a redirect is no link", faults=("kill",))
def redirects_are_links() -> Patches:
    """Bug: the target of a redirect is one level deeper, like the target of a link."""
    return [(link_policy, "LinkContext", _hop_with(1, 0))]


@plant("a redirect is one hop", faults=("kill",))
def redirects_count_twice() -> Patches:
    """Bug: a redirect counts as two hops, so that chains of redirects end too early."""
    return [(link_policy, "LinkContext", _hop_with(0, 1))]


def _hop_with(deeper: int, more: int) -> Any:
    """Return a patched `LinkContext` that adds to the depth and the number of hops of a redirect's target."""
    context = link_policy.LinkContext

    def made(depth: int = 0, via: int = 0, redirects: int = 0, *rest: Any, **other: Any) -> Any:
        return context(
            depth + bool(redirects) * deeper, via, redirects + bool(redirects) * more, *rest, **other
        )

    return made


@plant("a capture names its record", faults=())
def wrong_place() -> Patches:
    """Bug: every seventh capture is recorded at the place of the previous capture."""
    append, last = SegmentWriter.append, list[Any]()

    def behind(self: SegmentWriter, members: Any, now: float) -> Any:
        places = append(self, members, now)
        last.append(places)
        return last[-2] if len(last) % 7 == 6 else places

    return [(SegmentWriter, "append", behind)]


@plant("a revisit names its response", faults=("kill",), **REFRESHING)
def wrong_original() -> Patches:
    """Bug: a revisit refers to the response that was stored last, even if its payload differs."""
    choose, met = PageCache._choose_kind, list[Original]()

    def choose_last(self: PageCache, capturing: Any, previous: Any) -> None:
        choose(self, capturing, previous)
        if capturing.original is None and capturing.payload_bytes:
            met.append(page_cache.Original(capturing.key, capturing.fetch.url, capturing.instant))
        elif capturing.original is not None and met:
            capturing.original = met[-1]

    return [(PageCache, "_choose_kind", choose_last)]


@plant("retire drops only what it names", faults=("retire",), count=24)
def retires_the_host() -> Patches:
    """Bug: `retire` drops every waiting URL of the host."""
    retire = Intake.retire_some

    def all_of_host(self: Intake, matches: Any, batch: Any, *begin: Any) -> tuple[int, bytes]:
        pattern = getattr(matches, "__self__", None)
        host = pattern.pattern[1:].split("/")[2] if pattern is not None else ""
        return retire(self, lambda url: f"//{host}/" in url, batch, *begin)

    return [(Intake, "retire_some", all_of_host)]


@plant(
    "TERM keeps answered pages",
    faults=("term", "rerun"),
    count=12,
    within=10.0,
    tree={"splitter": {"heartbeat": 1.0}},
)
def results_dropped() -> Patches:
    """Bug: SIGTERM drops the results that are not committed yet."""

    async def nothing(self: Process) -> None:
        pass

    return [(Process, "_commit_rest", nothing), (CommitLoop, "commit_rest", lambda self: None)]


@plant("a signal reaches the owner of its page", faults=("signal",), **REFRESHING)
def foreign_signals_ignored() -> Patches:
    received = SignalIntake.received

    def without(self: SignalIntake, entry: Any, links: Any) -> Any:
        return received(self, entry, [link for link in links if not link.flags & LinkFlag.SIGNAL])

    return [(SignalIntake, "received", without)]


@plant("a signal leads to a fetch", faults=("signal",), **REFRESHING)
def signals_ignored() -> Patches:
    return [(SignalIntake, "_decide", lambda self, *arguments, **options: None)]


@plant("a notice of the page server leads to a fetch", faults=("notice",), **REFRESHING)
def notices_ignored() -> Patches:
    """Bug: signals from the page server and the Python API are answered, but never reach the commit queue."""

    async def nothing(self: LiveServices, raw_urls: Any, source: str) -> Signalled:
        return Signalled()

    return [(LiveServices, "signal", nothing)]


@plant("recovery finds all lost links", faults=("restore",), count=8)
def recovers_half() -> Patches:
    """Bug: `crawler recover` leaves out every second page of the archive."""
    owned = StoredLinks.owned_by

    def owned_by_some(self: StoredLinks, name: str) -> Iterator[Link]:
        return (link for link in owned(self, name) if not link.via or link.via % 2)

    return [(StoredLinks, "owned_by", owned_by_some)]


@plant("links that a browser shows are followed", faults=("kill",), web=SCRIPTED)
def shown_links_ignored() -> Patches:
    """Bug: links that appear only in the browser are not followed."""
    return [(page_rendering, "merged", lambda static, shown, left_for: static)]


@plant("what a rendered page asks for is stored", faults=("kill",), web=SCRIPTED)
def subresources_dropped() -> Patches:
    """Bug: the answers to the requests of a rendered page are not stored."""
    keep = ResultProcessor._keep_rendering

    def without(self: ResultProcessor, change: Any, rendering: Rendering, now: float) -> None:
        keep(self, change, msgspec.structs.replace(rendering, subresources=[]), now)

    return [(ResultProcessor, "_keep_rendering", without)]


@plant("a host rests as long as a visit deserves", faults=("kill",), web=SLOW_SCRIPTED)
def visit_not_counted() -> Patches:
    """Bug: after a rendered page, the gap of its host depends only on the answer of the page itself."""
    return [(politeness, "_busy_time", lambda fetch: fetch.took)]


@plant(
    "new pages get their share of the fetches again after they had run out",
    faults=("limits",),
    count=3,
    web=WebSpec(hosts=12, pages=150, change_rate=1 / HOUR),
    refresh=True,
    length=6 * HOUR,
    rate=0.05,
    within=5 * HOUR,
    tree=REFRESHING["tree"],
)
def share_forgotten() -> Patches:
    """Bug: the refresh share of one process counts for the whole crawl, so that later new pages are never fetched."""
    return [(Share, "of_crawl", property(lambda self: self.refresh))]


def _stay_behind(family: bytes) -> Patches:
    """Bug: a reshard does not move the keys of one family."""
    copy = NewProcess.copy

    def copy_others(self: NewProcess, prefix: bytes) -> Any:
        if prefix != family:
            yield from copy(self, prefix)

    return [(NewProcess, "copy", copy_others)]


@plant("a reshard moves waiting URLs", **RESHARDS)
def waiting_stay_behind() -> Patches:
    return _stay_behind(TODO)


@plant("a reshard moves parked URLs", faults=("reshard", "limits"))
def parked_stay_behind() -> Patches:
    return _stay_behind(PARKED)


@plant("a reshard moves known URLs", **RESHARDS)
def known_stay_behind() -> Patches:
    """Bug: a reshard moves none of the known URLs, and its check does not notice this."""
    return [
        (due_reshard, "_known", lambda to, dues: iter(())),
        (resharding, "check", lambda stages: []),
        (ProcessViews, "problems", lambda self: []),
    ]


@plant("a reshard copies the responses that revisits repeat", **RESHARDS)
def originals_stay_behind() -> Patches:
    return [(pages_reshard._Segments, "_bring_originals", lambda self, repeated: self._finish())]


@plant("after a reshard, a page is in one folder", **RESHARDS)
def segments_shared() -> Patches:
    """Bug: a reshard links a segment into the folder of each process that has pages of this segment."""
    survey = pages_reshard._Segments._survey

    def survey_own(self: Any) -> Any:
        own, _, repeated = survey(self)
        return own, own, repeated

    return [(pages_reshard._Segments, "_survey", survey_own)]


@plant("a reshard delivers links in transit", faults=("reshard", "partition"))
def in_transit_stay_behind() -> Patches:
    return [(resharding, "deliver_pending", lambda processes: None)]


@plant("a store lost after a reshard is noticed", faults=("reshard", "lost-disk"), count=8)
def counts_not_kept() -> Patches:
    """Bug: after a reshard, no process notices if another process has lost its store."""
    return [(resharding, "keep_counts", lambda *arguments: None)]


@plant("hosts keep their gaps in a reshard", **RESHARDS, tree={"politeness": {"delay": 20.0}})
def gaps_stay_behind() -> Patches:
    """Bug: hosts lose their gaps and failures when a reshard moves them."""
    return _stay_behind(HOST)
