"""Test resharding: no URL is lost or duplicated, and the switch to the new folders is completed after a crash."""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from crawler.clock import VirtualClock
from crawler.config import Config, RefreshConfig, Seconds, convert
from crawler.crawl import switch
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import (
    BUILT,
    JOURNAL,
    REPLACED,
    Journal,
    drop_unfinished,
    end_journal,
    keep_journal,
)
from crawler.crawl.process_names import process_names
from crawler.crawl.switch import Switch, finish
from crawler.crawl.topology import TABLE_FILE
from crawler.errors import BehindError, DirectoryError, UsageError
from crawler.frontier.refresh import RefreshOutcome, state
from crawler.frontier.refresh.delays import bin_of
from crawler.process.opening.process_views import ProcessViews
from crawler.process.opening.stages import Stages, at_rest
from crawler.process.results import reshard as process_reshard
from crawler.process.results.sent_seeds import sent_seed_urls, sent_seeds
from crawler.records import Link, Outcome, PageRecord, PageState
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change
from crawler.storage.files import Lock
from crawler.storage.keys import ASKED, CAPTURE, HANDOVER, HOST, INBOX, OUTBOX, REFRESH, TODO, bucket
from crawler.storage.kv import scan_prefix, seal
from crawler.upkeep import reshard
from crawler.upkeep.behind_peers import Exchanged, find_behind
from crawler.upkeep.check import check
from crawler.upkeep.deliver_pending import deliver_pending
from crawler.upkeep.recover import recover_links
from crawler.upkeep.reshard import Resharding
from tests.process.support import fetch, made
from tests.upkeep.support import write

SEED = bytes(range(16))
URLS = [f"http://h{n}.org/{page}" for n in range(12) for page in "ab"]


def config_of(processes: int) -> Config:
    return convert(
        {"crawl": {"processes": processes}, "cache": {"bits": 6}, "store": {"durability": "process"}}
    )


def crawl(path: Path, processes: int) -> CrawlDirectory:
    """Make a crawl whose processes have found `URLS`, most of which belong to another process."""
    directory = CrawlDirectory(path)
    directory.create(SEED)
    directory.settings.save(config_of(processes))
    with open_all(directory, processes) as opened:
        for place, stages in enumerate(opened):
            find(stages, URLS[place::processes])
    return directory


def open_one(directory: CrawlDirectory, processes: int, name: str) -> AbstractContextManager[Stages]:
    """Open one process of a crawl of several."""
    return at_rest(config_of(processes), directory, name, clock=VirtualClock())


@contextmanager
def open_all(directory: CrawlDirectory, processes: int) -> Iterator[list[Stages]]:
    """Open all processes of a crawl."""
    with ExitStack() as stack:
        names = process_names(config_of(processes))
        yield [stack.enter_context(open_one(directory, processes, name)) for name in names]


def find(stages: Stages, urls: list[str]) -> None:
    """Record links that a process found.

    Links that the process owns are queued for the DUE. Other links are queued for their owners.
    """
    change = Change()
    for url in urls:
        link = Link(stages.fingerprinter.fingerprint(url), url)
        owner = stages.topology.partition.owner(link.fingerprint)
        change.count("urls.accepted")
        if owner == stages.name:
            if not stages.due.admit(stages.fingerprinter.fingerprints([url])):
                change.count("urls.cache_hits")
                continue
            change.links.append(link)
            change.count("urls.to_due")
        else:
            change.foreign.append((owner, [link]))
            change.count("urls.to_outbox")
    stages.commits.commit_now(change)


def queued(directory: CrawlDirectory, processes: int) -> dict[str, list[int]]:
    """Return, for each process, the host buckets of all queued URLs. Assert that each process is consistent."""
    found = {}
    for name in process_names(config_of(processes)):
        with open_one(directory, processes, name) as stages:
            assert stages.views.problems() == []
            assert stages.outbox is None or stages.outbox.links == 0
            found[name] = [bucket(key) for key, _ in scan_prefix(stages.store, TODO)]
            owner = stages.topology.partition.owner_of_bucket
            mine = stages.topology.partition.index(name)
            assert all(owner[place] == mine for place in found[name])
            assert all(owner[bucket(key)] == mine for key, _ in scan_prefix(stages.store, HOST))
            stages.frontier._check()
    return found


def move(directory: CrawlDirectory, processes: int, epoch: int) -> list[str]:
    said: list[str] = []
    target = Partition.equal_ranges(process_names(config_of(processes)), epoch=epoch)
    Resharding(directory, config_of(processes), target, VirtualClock(), said.append).run()
    return said


def test_after_any_reshard_each_url_is_at_its_owner_once(tmp_path: Path) -> None:
    directory = crawl(tmp_path / "crawl", 2)
    directory.settings.note_places(["a.org"])
    epoch, before = 1, None
    for processes in (3, 1, 4, 2):
        epoch += 1
        said = move(directory, processes, epoch)
        assert sum(line.startswith("building") for line in said) == processes
        found = queued(directory, processes)
        everything = sorted(place for places in found.values() for place in places)
        assert len(everything) == len(URLS)
        assert before is None or everything == before
        assert processes == 1 or sum(bool(places) for places in found.values()) > 1
        before = everything
        assert not (directory.path / BUILT).exists() and not (directory.path / REPLACED).exists()
        assert directory.process_names() == process_names(config_of(processes))
        assert convert(directory.settings.load()).crawl.processes == processes
        assert Partition.read(directory.path / TABLE_FILE).epoch == epoch
        assert directory.settings.places() == ["a.org"], (
            "without hosts, relaxed settings would apply to no seed"
        )


def test_files_on_hosts_of_other_processes_move_to_the_owners(tmp_path: Path) -> None:
    """Pages of each process need the same licences, which are on hosts of other processes.

    Each process stores the licences, but not those of its own hosts. `check` once called the captures foreign
    keys, and a reshard failed, because it copied only captures from the owners of hosts.
    """
    directory = crawl(tmp_path / "crawl", 3)
    files = [f"http://h{n}.org/licence" for n in range(12)]
    with open_all(directory, 3) as opened:
        for stages in opened:
            owner_of, fingerprint = stages.topology.partition.owner, stages.fingerprinter.fingerprint
            page = fetch(next(url for url in URLS if owner_of(fingerprint(url)) == stages.name))
            now = stages.clock.now()
            for url in (url for url in files if owner_of(fingerprint(url)) != stages.name):
                answer = fetch(url, url.encode(), content_type="application/rsl+xml", began=now)
                stages.commits.commit_now(stages.decisions.results.site_file(page, url, answer, now)())
    before = None
    for processes, epoch in ((3, 1), (2, 2), (4, 3), (1, 4)):
        if epoch > 1:
            move(directory, processes, epoch)
        held = Counter[bytes]()
        with open_all(directory, processes) as opened:
            for stages in opened:
                assert not [line for line in check(stages) if "owns" in line or "were written" in line]
                held.update(key for key, _ in scan_prefix(stages.store, CAPTURE))
                for url in files:
                    copy = stages.pages.answer_of(url)
                    assert copy is None or copy.content == url.encode()
        if epoch == 1:
            assert set(held.values()) == {2}, "all processes but the owner have a copy"
            before = held.keys()
        else:
            assert held.keys() == before and set(held.values()) == {1}


def test_the_started_processes_are_those_of_the_new_table(tmp_path: Path) -> None:
    """With the old table, the loss of a new folder would not be noticed, and a removed folder would count as lost."""
    directory = crawl(tmp_path / "crawl", 1)
    for epoch, processes in ((2, 2), (3, 1)):
        move(directory, processes, epoch)
        begun = sorted(path.name for path in directory.path.glob("*.begun"))
        assert begun == [f"{name}.begun" for name in process_names(config_of(processes))]


def kept_fresh(processes: int) -> Config:
    return replace(config_of(processes), refresh=RefreshConfig(endless=True, min_age=Seconds(0)))


def refresh_state(directory: CrawlDirectory, processes: int) -> dict[int, Any]:
    """Return the refresh state of each page.

    The refresh state consists of the states of the page, its site and its directory, the page's deadline at a
    fixed level, and the level and the corrections of its process.
    """
    found = {}
    for name in process_names(config_of(processes)):
        with at_rest(kept_fresh(processes), directory, name, clock=VirtualClock()) as stages:
            assert stages.refresh is not None
            stages.refresh._check()
            schedule, now = stages.refresh.schedule, stages.clock.now()
            level, schedule.pace.level = schedule.pace.level, 5e5
            for key, _ in scan_prefix(stages.store, REFRESH):
                page = schedule.find(int.from_bytes(key[2:], "big"))
                rest = [stages.store.get(prefix + key[2:]) for prefix in (ASKED, HANDOVER)]
                site = schedule.records.site_state(schedule.host_of(page))
                said = (schedule.records.page_state(page), site, schedule.records.directory_state(page), rest)
                assert key[2:] not in found, "two processes have the same page"
                due = schedule.overview.due_at(page, now)
                found[key[2:]] = (said, due, level, schedule.records.bias)
    return found


def test_refresh_state_moves_with_its_pages(tmp_path: Path) -> None:
    """A page that moves keeps its last crawl, learned rates, signals, importance, requests and deadline."""
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create(SEED)
    directory.settings.save(kept_fresh(2))
    for name in ("p0", "p1"):
        with at_rest(kept_fresh(2), directory, name, clock=VirtualClock()) as stages:
            refresh, now, change = stages.refresh, stages.clock.now(), Change()
            assert refresh is not None
            refresh.schedule.pace.level = {"p0": 4e5, "p1": 5e5}[name]
            owns = stages.topology.partition.owner
            for number, url in enumerate(URLS):
                fingerprint = stages.fingerprinter.fingerprint(url)
                if owns(fingerprint) != name:
                    continue
                record = PageRecord(url, PageState.STORED, Outcome.FETCHED, 200)
                refresh.outcomes.record_first(fingerprint, record, now - 1e6 * (number % 5), now, change)
                page = refresh.schedule.find(fingerprint)
                refresh.schedule.acquire(page, now)
                refresh.schedule.record_outcome(page, now, RefreshOutcome(number % 2), now)
                refresh.schedule.signals.note_change(page, now + 1.0, 2)
                state.stage(refresh.schedule, page, change)
                change.put(ASKED + fingerprint.to_bytes(8, "big"), seal(b"asked"))
                change.put(HANDOVER + fingerprint.to_bytes(8, "big"), seal(b"handover"))
            stages.commits.commit_now(change)
    before = refresh_state(directory, 2)
    assert len(before) == len(URLS)
    corrections = {bias for *_, bias in before.values()}
    assert len(corrections) == 2
    mean = [sum(each) / 2.0 for each in zip(*corrections, strict=True)]
    for epoch, processes in ((2, 3), (3, 1), (4, 2)):
        move(directory, processes, epoch)
        after = refresh_state(directory, processes)
        assert {key: said for key, (said, *_) in after.items()} == {
            key: said for key, (said, *_) in before.items()
        }
        for key, (_, due, level, bias) in after.items():
            assert bias == pytest.approx(mean)
            assert level == pytest.approx(before[key][2], rel=0.2)
            if processes == 2:
                # Sites and directories learn from the same pages as before, but the factor of the variation of rates is
                # the mean of the old ones.
                assert due == pytest.approx(before[key][1], rel=5e-3)


def test_the_sums_of_the_counts_of_new_pages_stay_the_same(tmp_path: Path) -> None:
    directory = CrawlDirectory(tmp_path / "crawl")
    directory.create(SEED)
    directory.settings.save(kept_fresh(2))
    for number, name in enumerate(("p0", "p1"), 1):
        with at_rest(kept_fresh(2), directory, name, clock=VirtualClock()) as stages:
            assert stages.refresh is not None
            news, now, change = stages.refresh.news, stages.clock.now(), Change()
            for kind in ("page", "feed")[:number]:
                news.found(kind, change)
            news.copied(now - 100.0 * number, now, change)
            stages.commits.commit_now(change)
    for epoch, processes in ((2, 3), (3, 1), (4, 2)):
        move(directory, processes, epoch)
        found, delays = Counter[str](), Counter[int]()
        for name in process_names(kept_fresh(processes)):
            with at_rest(kept_fresh(processes), directory, name, clock=VirtualClock()) as stages:
                assert stages.refresh is not None
                found.update(stages.refresh.news.counts.by_kind)
                delays.update(stages.refresh.news.counts.delays)
        assert found == {"page": 2, "feed": 1} and delays == {bin_of(100.0): 1, bin_of(200.0): 1}


def test_after_delivery_no_link_is_in_transit(tmp_path: Path) -> None:
    """All links are delivered. A second delivery changes nothing, and no process reports a problem."""
    directory = crawl(tmp_path / "crawl", 3)
    with open_all(directory, 3) as processes:
        assert sum(stages.views.waiting_for_peers() != {} for stages in processes) > 0
        for _ in range(2):
            deliver_pending(processes)
            assert [stages.outbox.links for stages in processes if stages.outbox] == [0, 0, 0]
            assert [stages.views.problems() for stages in processes] == [[], [], []]
            assert [stages.views.due_counts().pending for stages in processes] == [0, 0, 0]
            assert not any(list(scan_prefix(stages.store, OUTBOX)) for stages in processes)
            assert not any(spool.connected for stages in processes for spool in stages.outbox.spools.values())
            assert sum(stages.views.frontier_counts().todo for stages in processes) == len(URLS)


def test_a_process_that_has_lost_links_is_not_resharded(tmp_path: Path) -> None:
    """A reshard is refused until the lost links are recovered.

    For this, the outbox of the peer starts a new epoch and sends the links again.
    """
    directory = crawl(tmp_path / "crawl", 2)
    for turn in range(2):
        with open_all(directory, 2) as processes:
            first = processes[0]
            if turn:
                find(first, [f"{url}/later" for url in URLS])
            assert first.outbox.links > 0
            if turn:
                with pytest.raises(BehindError, match="`crawler check --repair`"):
                    deliver_pending(processes)
                first.outbox.start_over("p1")
            deliver_pending(processes)
            assert first.outbox.links == 0 == sum(each.views.due_counts().pending for each in processes)
            assert sum(each.views.frontier_counts().todo for each in processes) == len(URLS) * (1 + turn)
        if not turn:
            with open_one(directory, 2, "p1") as stages:
                write(stages.store, {key: None for key, _ in scan_prefix(stages.store, INBOX)})


def test_a_store_lost_after_a_reshard_is_noticed(tmp_path: Path) -> None:
    """Once, the counts of a new process began at zero.

    If the process then lost its store, its peers accepted an empty store.
    """
    directory = crawl(tmp_path / "crawl", 2)
    move(directory, 3, 2)
    with open_all(directory, 3) as processes:
        assert find_behind({each.name: Exchanged.of(each) for each in processes}) == []
        find(processes[0], [f"{url}/later" for url in URLS])
        deliver_pending(processes)
        assert find_behind({each.name: Exchanged.of(each) for each in processes}) == []
        known = {each.name: each.due.new for each in processes}
        assert min(known.values()) > 0 and all(each.views.problems() == [] for each in processes)
    shutil.rmtree(directory.process("p1"))
    (directory.path / "p1.begun").unlink()  # a separate node that has lost its disk does not have this mark
    directory.process("p1").mkdir()
    with open_all(directory, 3) as processes:
        lost = find_behind({each.name: Exchanged.of(each) for each in processes})
        assert [(each.name, each.peer) for each in lost] == [("p1", "p0"), ("p1", "p2")]
        assert lost[0].links == known["p1"], "those at the reshard and those that p0 has sent since then"
        find(processes[0], [f"{url}/last" for url in URLS])
        with pytest.raises(BehindError):
            deliver_pending(processes)


def test_links_with_numbers_that_a_restored_outbox_repeats_are_not_lost(tmp_path: Path) -> None:
    """A check value shows that the receipts of the peer are for links of an earlier outbox. So all links are sent."""
    directory = crawl(tmp_path / "crawl", 2)
    with open_all(directory, 2) as (first, second):
        spool, source = first.outbox.spools["p1"], second.inbox._sources["p0"]
        assert first.outbox.links > 0
        source.durable = msgspec.structs.replace(
            source.durable, epoch=spool.state.epoch, sequence=spool.committed - spool.state.base, chain=7
        )
        deliver_pending([first, second])
        assert sum(each.views.frontier_counts().todo for each in (first, second)) == len(URLS)


def test_the_end_of_the_delivery_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A later power cut must not bring back links that the next step treats as delivered."""
    directory, synced = crawl(tmp_path / "crawl", 2), []
    with open_all(directory, 2) as processes:
        for each in processes:
            note = partial(lambda name, change: synced.append((name, change.sync)), each.name)
            monkeypatch.setattr(each.commits, "commit_now", note)
        deliver_pending(processes)
        assert synced == [("p0", True), ("p1", True)]
        monkeypatch.undo()
        deliver_pending(processes)


def test_an_old_table_or_a_missing_process_is_refused(tmp_path: Path) -> None:
    directory = crawl(tmp_path / "crawl", 2)
    with pytest.raises(UsageError, match="epoch"):
        move(directory, 3, 1)
    with Lock(directory.process("p1") / "node.lock", "p1"), pytest.raises(DirectoryError):
        move(directory, 3, 2)
    (directory.path / "p1").rename(tmp_path / "elsewhere")
    with pytest.raises(DirectoryError, match="missing: p1"):
        move(directory, 3, 2)


def test_a_failed_check_of_a_new_process_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = crawl(tmp_path / "crawl", 2)
    monkeypatch.setattr(reshard, "problems_of", lambda *_: ["a law does not hold"])
    with pytest.raises(DirectoryError, match="a law does not hold.*nothing was changed"):
        move(directory, 3, 2)
    assert not (directory.path / JOURNAL).exists()
    assert directory.process_names() == ["p0", "p1"]
    monkeypatch.undo()
    move(directory, 3, 2)
    assert len(sum(queued(directory, 3).values(), [])) == len(URLS)


def test_each_step_is_durable_before_the_next_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New folders are synced before the journal is written.

    The new configuration is synced before the journal is deleted.
    """
    directory, done = crawl(tmp_path / "crawl", 2), []
    steps = [(reshard, name) for name in ("sync_directory", "keep_journal")]
    steps += [(switch, name) for name in ("sync_directory", "atomic_write", "end_journal")]
    for module, name in steps:
        real = getattr(module, name)

        def noted(path: Path, *more: Any, name: str = name, real: Any = real) -> None:
            there = (directory.path / JOURNAL).exists()
            done.append((name, path.name, there))
            real(path, *more)

        monkeypatch.setattr(module, name, noted)
    for module in (reshard, switch):
        monkeypatch.setattr(module, "reach", lambda point: done.append(("reach", point, True)))
    move(directory, 3, 2)
    root = directory.path.name
    assert done == [
        ("sync_directory", BUILT, False),
        ("reach", "reshard built", True),
        ("keep_journal", root, False),
        ("reach", "reshard decided", True),
        *[("reach", "reshard replaced", True)] * 2,
        *[("reach", "reshard renamed", True)] * 3,
        ("atomic_write", TABLE_FILE, True),
        ("atomic_write", directory.settings.file.name, True),
        ("sync_directory", root, True),
        ("end_journal", root, True),
    ]


def test_the_first_problem_of_a_damaged_crawl_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = crawl(tmp_path / "crawl", 2)
    monkeypatch.setattr(ProcessViews, "problems", lambda self: [f"law {number}" for number in (1, 2)])
    with pytest.raises(DirectoryError, match="p0: law 1; run `crawler check` first"):
        move(directory, 3, 2)
    assert directory.process_names() == ["p0", "p1"]


# -- the switch alone --------------------------------------------------------------------


class Crash(Exception):
    """Raised to simulate a power cut."""


def prepared(path: Path, old: list[str], new: list[str]) -> CrawlDirectory:
    """Return a directory in which a reshard has just written its journal.

    Each folder contains the name of its process.
    """
    directory = CrawlDirectory(path)
    for name in old:
        (path / name / "store").mkdir(parents=True)
        (path / name / "store" / "whose").write_text(f"old {name}")
    for name in new:
        (path / BUILT / name / "store").mkdir(parents=True)
        (path / BUILT / name / "store" / "whose").write_text(f"new {name}")
    journalled = Switch(old=old, new=new, config="[crawl]\nprocesses = 3\n", table='{"epoch": 2}')
    keep_journal(path, Journal("reshard", facts=msgspec.to_builtins(journalled)))
    return directory


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["p0"], ["p0", "p1", "p2"]),
        (["p0", "p1", "p2"], ["p0"]),
        (["p0", "p1"], ["p1", "p2"]),
        (["a"], ["b"]),
    ],
)
def test_a_switch_is_completed_after_a_crash_at_any_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: list[str], new: list[str]
) -> None:
    """The switch crashes at each step. The command that completes the switch crashes at each step, too."""
    steps = len(old) + len(new)
    for crashes in [(first, second) for first in range(steps + 1) for second in range(steps + 1)]:
        directory = prepared(tmp_path / f"{crashes}", old, new)
        for left in crashes:
            count = [left]

            def reach(_: str, count: list[int] = count) -> None:
                count[0] -= 1
                if count[0] < 0:
                    raise Crash

            monkeypatch.setattr(reshard, "reach", reach)
            try:
                assert finish(directory) in (True, False)
            except Crash:
                assert (directory.path / JOURNAL).exists()
        monkeypatch.setattr(reshard, "reach", lambda _: None)
        finish(directory)
        assert not finish(directory)
        assert {path.stem for path in directory.path.glob("*.begun")} == set(new)
        whose = {path.parent.parent.name: path.read_text() for path in directory.path.glob("*/store/whose")}
        assert whose == {name: f"new {name}" for name in new}
        assert directory.settings.file.read_text() == "[crawl]\nprocesses = 3\n"
        assert (directory.path / TABLE_FILE).read_text() == '{"epoch": 2}'
        left_over = {BUILT, REPLACED, JOURNAL} & {path.name for path in directory.path.iterdir()}
        assert left_over == set()


def test_a_reshard_writes_no_trace(tmp_path: Path) -> None:
    directory = crawl(tmp_path / "crawl", 1)
    config = config_of(2)
    config = replace(config, crawl=replace(config.crawl, trace=True))
    target = Partition.equal_ranges(process_names(config), epoch=2)
    Resharding(directory, config, target, VirtualClock(), lambda _: None).run()
    assert list(directory.path.glob("*/trace/*")) == []


@pytest.mark.parametrize("name", [BUILT, REPLACED])
def test_leftovers_of_a_killed_reshard_are_removed_by_the_next_command(tmp_path: Path, name: str) -> None:
    """While the journal exists, the folders are needed.

    Once, folders of old processes stayed forever after the journal was deleted.
    """
    directory = crawl(tmp_path / "crawl", 2)
    left = directory.path / name / "p0" / "store"
    left.mkdir(parents=True)
    keep_journal(directory.path, Journal("reshard"))
    drop_unfinished(directory.path)
    assert left.exists()
    end_journal(directory.path)
    drop_unfinished(directory.path)
    assert not (directory.path / name).exists()


def give(directory: CrawlDirectory, processes: int, name: str, urls: list[str]) -> None:
    """Give seeds to one process, as `crawler seed` does."""
    with open_one(directory, processes, name) as stages:
        stages.commits.commit_now(made(stages.decisions.admission.seeds(urls))[0])


def kept_seeds(directory: CrawlDirectory, processes: int) -> dict[str, list[str]]:
    """Return the seeds that each process keeps for the case that their owners lose them."""
    found = {}
    for name in process_names(config_of(processes)):
        with open_one(directory, processes, name) as stages:
            found[name] = [url for urls in sent_seed_urls(stages.store) for url in urls]
            for urls, fingerprints in sent_seeds(stages.store):
                assert fingerprints.tolist() == stages.fingerprinter.fingerprints(urls).tolist()
                owners = {stages.topology.partition.owner(each) for each in fingerprints.tolist()}
                assert processes == 1 or name not in owners
    return found


def test_seeds_that_were_sent_survive_any_reshard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each seed is kept once, by another process than its owner. A process that is given a seed again keeps no copy.

    `crawler recover` finds the seeds of each process with the others.
    """
    monkeypatch.setattr(process_reshard, "_SEEDS_AT_ONCE", 3)
    directory = crawl(tmp_path / "crawl", 3)
    seeds = [f"http://s{n}.org/" for n in range(24)]
    for name in ("p0", "p1", "p2", "p0"):
        give(directory, 3, name, seeds)
    assert sum(map(len, kept_seeds(directory, 3).values())) == 2 * len(seeds), (
        "two processes have sent each seed"
    )
    for epoch, processes in enumerate((4, 1, 3, 2), 2):
        move(directory, processes, epoch)
        kept = kept_seeds(directory, processes)
        assert sorted(url for urls in kept.values() for url in urls) == sorted(seeds)
        assert len([urls for urls in kept.values() if urls]) == processes
        holder = next(name for name, urls in kept.items() if urls)
        give(directory, processes, holder, kept[holder])
        assert kept_seeds(directory, processes) == kept
        assert sum(map(len, queued(directory, processes).values())) == len(URLS) + len(seeds)
    with open_all(directory, 2) as (one, other):
        assert recover_links(one, "p1") == (len(kept["p0"]), [])
        assert recover_links(other, "p0") == (len(kept["p1"]), [])
