"""N processes on a virtual clock: cuts, crashes, silence; every link is applied exactly once at its owner."""

import random

import pytest

from crawler.config import SplitterConfig
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.splitter.spool import Greeting
from crawler.storage.kv import Batch, KeyValue, MemoryStore
from tests.splitter.cluster import CONFIG, Cluster, Node
from tests.splitter.links import make_links


def test_a_quiet_crawl_ends_by_itself_with_every_page_stored_once() -> None:
    cluster = Cluster(1, size=4)
    cluster.start()
    cluster.run_until(cluster.ended)
    cluster.check_exactly_once()
    assert cluster.fetches == len(cluster.web.pages)
    assert all(node.crawlwide.total().idle for node in cluster.nodes.values())


def test_one_process_alone_ends_too() -> None:
    cluster = Cluster(2, size=1)
    cluster.start()
    cluster.run_until(cluster.ended)
    cluster.check_exactly_once()


def trouble(cluster: Cluster, faults: int) -> None:
    """Cuts, one-sided cuts, kills and power cuts at random moments, each mended later."""
    rng = cluster.rng
    for _ in range(faults):
        cluster.run_for(rng.uniform(0.01, 2.0))
        fault = rng.choice(["reset", "one end", "silent", "kill", "power", "partition"])
        node = rng.choice(list(cluster.nodes.values()))
        cables = cluster.cables()
        if fault == "partition":
            pair = frozenset(rng.sample(cluster.names, 2))
            cluster.cut_pairs.add(pair)
            cluster.at(cluster.now + rng.uniform(1, 40), lambda pair=pair: cluster.cut_pairs.discard(pair))
            for cable in cables:
                if {each.name for each in cable.nodes.values()} == pair:
                    cable.lose(noticed_by=[])
        elif fault in ("kill", "power"):
            if node.up:
                node.crash(power=fault == "power")
                cluster.at(cluster.now + rng.uniform(0.1, 4), node.start)
        elif cables:
            cable = rng.choice(cables)
            ends = [cable.dialler, cable.listener]
            cable.lose(noticed_by={"reset": ends, "one end": [rng.choice(ends)], "silent": []}[fault])


@pytest.mark.parametrize("seed", range(12))
def test_faults_lose_nothing_and_apply_nothing_twice(seed: int) -> None:
    cluster = Cluster(seed, size=3, pages=400, commit_max=0.1)
    cluster.start()
    trouble(cluster, 40)
    cluster.run_until(cluster.ended)
    cluster.check_exactly_once()


class EagerInbox(Inbox):
    """Planted bug: confirms what is accepted, before it is durable."""

    def durable(self, peer: str) -> int:
        return max(super().durable(peer), self.accepted(peer))

    def _check(self) -> None:
        pass


class VolatileOutbox(Outbox):
    """Planted bug: entries are kept in memory only."""

    def __init__(self, store: KeyValue, *args: object, **options: object) -> None:
        super().__init__(MemoryStore(), *args, **options)

    def stage(self, batch: Batch) -> None:
        kept = self._store.batch(sync=False)
        super().stage(kept)
        self._store.write(kept)


class EagerNode(Node):
    inbox_class = EagerInbox


class VolatileNode(Node):
    outbox_class = VolatileOutbox


@pytest.mark.parametrize("node_class", [EagerNode, VolatileNode])
def test_the_test_notices_planted_bugs(node_class: type[Node]) -> None:
    """Acks before the commit, and an outbox in memory only, must lose pages in this very test."""
    lost = 0
    for seed in range(4):
        cluster = Cluster(seed, size=3, pages=400, commit_max=0.1, node_class=node_class)
        cluster.start()
        trouble(cluster, 40)
        cluster.run_for(100)
        lost += cluster.lost()
    assert lost > 20


class StaticNode(Node):
    """Fetches nothing: its outbox is filled by the test."""

    fetching = False


def fill_outboxes(cluster: Cluster, links_each: int) -> None:
    """Fill the outboxes of running nodes for all others, as one committed group."""
    rng = random.Random(9)
    for node in cluster.nodes.values():
        items = []
        for peer, first, end in cluster.partition.ranges():
            if peer != node.name:
                items.append((peer, make_links(rng, links_each, first=first, last=end)))
        batch = node.store.batch(sync=True)
        node.outbox.write(items)
        node.inbox.write([])
        node.outbox.stage(batch)
        node.inbox.stage(batch)
        node.store.write(batch)
        node.outbox.committed()
        node.inbox.committed()


def static_cluster(seed: int, **options: object) -> Cluster:
    cluster = Cluster(seed, pages=1, node_class=StaticNode, **options)
    for node in cluster.nodes.values():
        node.fetching = False
        node.store = type(node.store)(keep_durable=True)
    return cluster


def all_confirmed(cluster: Cluster) -> bool:
    return all(node.outbox.links == 0 for node in cluster.nodes.values())


def test_two_full_outboxes_drain_each_other() -> None:
    """Each has 50 windows for the other; neither may wait for its own sending before it confirms."""
    config = SplitterConfig(window_bytes=1000, entry_bytes=200, frame_bytes_max=4096, spool_bytes_max=10_000)
    cluster = static_cluster(3, size=2, config=config)
    cluster.start()
    fill_outboxes(cluster, 600)
    assert all(node.outbox.full for node in cluster.nodes.values())
    cluster.run_until(lambda: all_confirmed(cluster), limit=600)
    assert {node.inbox.applied for node in cluster.nodes.values()} == {600}
    cluster.check_books()


def test_no_more_than_a_window_is_ever_in_flight() -> None:
    cluster = static_cluster(4, size=2)
    cluster.start()
    fill_outboxes(cluster, 300)
    most = 0

    def done() -> bool:
        nonlocal most
        for node in cluster.nodes.values():
            for spool in node.outbox.spools.values():
                most = max(most, spool.in_flight_bytes)
            assert node.inbox.queued_bytes <= CONFIG.window_bytes
        return all_confirmed(cluster)

    cluster.run_until(done)
    assert 0 < most <= CONFIG.window_bytes


def test_a_stopped_process_slows_nobody() -> None:
    """p2 takes connections and says nothing more for a minute: the others go on as without it."""
    cluster = static_cluster(5, size=3)
    cluster.start()
    cluster.run_for(1.0)
    stopped = cluster.nodes["p2"]
    stopped.after_event = lambda: None
    for cable in stopped.cables:
        mine = cable.dialler if cable.nodes[id(cable.dialler)] is stopped else cable.listener
        cable.open[id(mine)] = False  # takes nothing in
    fill_outboxes(cluster, 100)
    others = [cluster.nodes["p0"], cluster.nodes["p1"]]
    between = [(others[0], "p1"), (others[1], "p0")]
    cluster.run_until(lambda: all(node.outbox.spools[peer].links == 0 for node, peer in between), limit=5)
    assert all(node.outbox.spools["p2"].links == 100 for node in others)
    cluster.run_for(40)
    assert any("silent for 30 s" in ending for ending in cluster.endings)


def test_a_lost_disk_at_the_receiver_is_noticed_and_waiting_links_arrive() -> None:
    cluster = static_cluster(6, size=2)
    cluster.start()
    fill_outboxes(cluster, 50)
    cluster.run_until(lambda: all_confirmed(cluster))
    sender, receiver = cluster.nodes["p0"], cluster.nodes["p1"]
    receiver.crash(power=False)
    receiver.store = type(receiver.store)(keep_durable=True)
    fill_outboxes(cluster, 30)
    receiver.start()
    cluster.run_until(lambda: sender.outbox.links == 0)
    assert receiver.inbox.applied == 30
    assert sender.outbox.take_lost_peers() == ["p1"]
    assert any(Greeting.DISK_LOST in ending for ending in cluster.endings)


def test_a_lost_tail_at_the_sender_is_noticed_and_nothing_later_is_dropped() -> None:
    """Unsynced groups were sent and confirmed, then a power cut took them: new entries must not look old."""
    cluster = static_cluster(7, size=2)
    sender, receiver = cluster.nodes["p0"], cluster.nodes["p1"]
    cluster.start()
    fill_outboxes(cluster, 10)
    cluster.run_until(lambda: all_confirmed(cluster))
    tail_lost = dict(sender.store.durable)
    fill_outboxes(cluster, 20)
    cluster.run_until(lambda: all_confirmed(cluster))
    assert receiver.inbox.applied == 30
    sender.store.durable = tail_lost
    sender.crash(power=True)
    sender.start()
    cluster.run_for(60)
    assert any(Greeting.TAIL_LOST in ending for ending in cluster.endings)
    before = receiver.inbox.applied
    fill_outboxes(cluster, 40)
    cluster.run_until(lambda: sender.outbox.links == 0)
    assert receiver.inbox.applied == before + 40


def test_an_unclean_start_without_synced_writes_begins_a_fresh_epoch() -> None:
    cluster = static_cluster(8, size=2)
    sender, receiver = cluster.nodes["p0"], cluster.nodes["p1"]
    cluster.start()
    fill_outboxes(cluster, 10)
    cluster.run_until(lambda: all_confirmed(cluster))
    epoch = sender.outbox.spools["p1"].state.epoch
    sender.crash(power=False)
    sender.clean = False
    sender.start()
    assert sender.outbox.spools["p1"].state.epoch != epoch
    fill_outboxes(cluster, 10)
    cluster.run_until(lambda: all_confirmed(cluster))
    assert receiver.inbox.applied == 30  # the ten whose deletes were not committed came once more


def test_a_missing_process_holds_up_the_end_and_not_the_crawl() -> None:
    cluster = Cluster(10, size=3, pages=200)
    cluster.start()
    cluster.run_for(0.5)
    missing = cluster.nodes["p1"]
    missing.crash(power=True)
    cluster.run_for(200)
    assert not any(cluster.nodes[name].crawlwide.ended for name in ("p0", "p2"))
    missing.start()
    cluster.run_until(cluster.ended)
    cluster.check_exactly_once()


@pytest.mark.parametrize("seed", range(6))
def test_the_end_is_never_announced_early(seed: int) -> None:
    """Whenever any process knows of the end, everything is done everywhere."""
    cluster = Cluster(100 + seed, size=4, pages=150, latency_max=2.0)
    cluster.start()
    cluster.run_until(lambda: any(node.crawlwide.ended for node in cluster.nodes.values()))
    cluster.check_exactly_once()
    cluster.run_until(lambda: all(node.crawlwide.all_know for node in cluster.nodes.values()), limit=60)
