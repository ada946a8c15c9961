"""N processes of a crawl in one Python process, on a virtual clock, with a network and disks that fail.

Each node owns real splitter objects on a memory store that keeps apart what is
durable. The web is a tree: every page has exactly one in-link, so one lost
link loses everything below it, and an ordinary graph's redundancy hides
nothing. A page that is fetched puts its links where its record goes, in one
group. The network delivers bytes in order, in pieces, late, or not at all: it
cuts connections, for both ends at once or for one of them after its silence.
"""

import heapq
import random
from collections.abc import Callable
from itertools import count

import numpy as np

from crawler.config import SplitterConfig
from crawler.records import Link
from crawler.splitter.crawlwide import CrawlWide, Progress
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.splitter.partition import Partition
from crawler.splitter.session import Backoff, Common, Dialler, Doorkeeper, Identity, Listener
from crawler.storage.kv import MemoryStore, scan_prefix

CONFIG = SplitterConfig(window_bytes=2000, entry_bytes=300, frame_bytes_max=4096, spool_bytes_max=1 << 30)


class Web:
    """A random tree of pages; `children[fingerprint]` are the links on a page, `pages[0]` is the seed."""

    def __init__(self, rng: random.Random, size: int) -> None:
        fingerprints = [rng.getrandbits(64) for _ in range(size)]
        self.pages = [Link(each, f"http://h{each >> 60}.test/{n}") for n, each in enumerate(fingerprints)]
        self.children: dict[int, list[Link]] = {each: [] for each in fingerprints}
        for index in range(1, size):
            parent = rng.randrange(max(0, index - 40), index)
            self.children[fingerprints[parent]].append(self.pages[index])


class Cable:
    """One connection: two sessions, bytes on the way between them."""

    def __init__(self, cluster: "Cluster", dialler: Dialler, near: "Node", far: "Node") -> None:
        self.cluster = cluster
        self.ends: dict[object, tuple[Node, object]] = {}
        self.listener = Listener(far.common, far.doorkeeper.admit, cluster.now)
        self.dialler = dialler
        self.nodes = {id(dialler): near, id(self.listener): far}
        self.open = {id(dialler): True, id(self.listener): True}
        self.timer_at = {id(dialler): float("inf"), id(self.listener): float("inf")}
        self.last_arrival = {id(dialler): 0.0, id(self.listener): 0.0}
        self.cut = False
        far.doorkeeper.enter(self.listener)

    def other(self, session: object) -> Dialler | Listener:
        return self.listener if session is self.dialler else self.dialler

    def flush(self) -> None:
        """Put what both sessions want to send on the way; close for the other end what has ended."""
        for session in (self.dialler, self.listener):
            if not self.open[id(session)]:
                continue
            data = session.data_to_send()
            while data:
                piece = self.cluster.rng.choice([1, 7, 100, len(data)])
                self._carry(session, data[:piece])
                data = data[piece:]
            if session.ending is not None:
                self.open[id(session)] = False
                self.nodes[id(session)].session_ended(session)
                self._carry(session, b"")
            else:
                self._set_timer(session)

    def _set_timer(self, session: Dialler | Listener) -> None:
        due = session.next_wakeup()
        if due < self.timer_at[id(session)]:
            self.timer_at[id(session)] = due
            self.nodes[id(session)].later(due - self.cluster.now, lambda: self._tick(session, due))

    def _tick(self, session: Dialler | Listener, due: float) -> None:
        if self.open[id(session)] and self.timer_at[id(session)] == due:
            self.timer_at[id(session)] = float("inf")
            session.tick(self.cluster.now)
            self.nodes[id(session)].after_event()

    def _carry(self, sender: object, data: bytes) -> None:
        """Deliver `data` after a while, in order; b"" is the end of the stream."""
        target = self.other(sender)
        at = self.cluster.now + self.cluster.rng.uniform(0.0005, self.cluster.latency_max)
        at = self.last_arrival[id(target)] = max(at, self.last_arrival[id(target)])
        self.cluster.at(at, lambda: self._arrive(target, data))

    def _arrive(self, target: Dialler | Listener, data: bytes) -> None:
        if self.cut or not self.open[id(target)]:
            return
        if data:
            target.receive(data, self.cluster.now)
        else:
            target.connection_lost("closed by the peer")
        self.nodes[id(target)].after_event()

    def lose(self, *, noticed_by: list[object]) -> None:
        """The cable is cut: nothing arrives any more, and only some ends are told."""
        self.cut = True
        for session in noticed_by:
            if self.open[id(session)]:
                session.connection_lost("reset")
                self.nodes[id(session)].after_event()


class Node:
    """One process: pages to do, a committer with delays, the splitter's objects."""

    outbox_class = Outbox
    inbox_class = Inbox
    sync = True

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.store = MemoryStore(keep_durable=True)
        self.boots = 0
        self.up = False
        self.fetching = True
        self.clean = True
        self.life = 0  # callbacks of an earlier life are void

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        cluster = self.cluster
        self.boots += 1
        self.life += 1
        self.up = True
        boot = f"{self.name}-{self.boots}".encode()
        peers = [name for name in cluster.names if name != self.name]
        self.outbox = self.outbox_class(self.store, peers, cluster.config, cluster.rng, clean=self.clean)
        self.inbox = self.inbox_class(self.store, cluster.partition, self.name, peers, cluster.config)
        self.crawlwide = CrawlWide(
            self.name, cluster.names, boot, self.progress, silence_max=cluster.config.silence_max
        )
        identity = Identity("crawl", self.name, boot, 1, b"check")
        self.common = Common(
            identity,
            cluster.partition,
            self.outbox,
            self.inbox,
            self.crawlwide,
            cluster.config,
            cluster.rng,
            secret=b"s" * 16,
        )
        self.doorkeeper = Doorkeeper(sessions_max=len(peers) + 4)
        self.cables: list[Cable] = []
        self.queue: list[tuple[str, object]] = []  # the committer's input
        self.committing = False
        self.todo = {key[2:]: value for key, value in scan_prefix(self.store, b"t/")}
        self.in_flight: set[bytes] = set()
        self.refetches = 0
        for peer in peers:
            self.dial(peer, Backoff(cluster.config, cluster.rng))
        self.fetch_more()

    def crash(self, *, power: bool) -> None:
        """The process dies; its connections are reset (or, with the machine, only fall silent)."""
        self.up = False
        self.life += 1
        self.store = MemoryStore(self.store.durable if power else dict(self.store._data), keep_durable=True)
        for cable in self.cables:
            mine = cable.dialler if cable.nodes[id(cable.dialler)] is self else cable.listener
            cable.open[id(mine)] = False
            cable.lose(noticed_by=[] if power else [cable.other(mine)])

    def later(self, delay: float, action: Callable[[], None]) -> None:
        life = self.life
        self.cluster.at(self.cluster.now + delay, lambda: action() if self.life == life else None)

    # -- connections ------------------------------------------------------------------------------

    def dial(self, peer: str, backoff: Backoff) -> None:
        far = self.cluster.nodes[peer]
        if not self.outbox.spools[peer].ready or not far.up or self.cluster.is_cut(self.name, peer):
            self.later(backoff.next(), lambda: self.dial(peer, backoff))
            return
        cable = Cable(self.cluster, Dialler(self.common, peer, self.cluster.now), self, far)
        cable.backoff = backoff
        for node in (self, far):
            node.cables.append(cable)
        cable.flush()

    def session_ended(self, session: Dialler | Listener) -> None:
        cable = next(cable for cable in self.cables if session in (cable.dialler, cable.listener))
        self.cables.remove(cable)
        self.cluster.endings.append(str(session.ending))
        if isinstance(session, Dialler):
            if session.ending.reason is None:
                cable.backoff.reset()
            self.later(cable.backoff.next(), lambda: self.dial(session.peer, cable.backoff))
        else:
            self.doorkeeper.leave(session)

    def after_event(self) -> None:
        """Take what was received, commit what is due, send what is to be sent."""
        if not self.up:
            return
        self.take_received()
        if self.outbox.urgent and not self.committing:
            self.queue.append(("nothing", None))
        self.commit()
        self.crawlwide.advance()
        for cable in tuple(self.cables):
            cable.flush()

    def take_received(self) -> None:
        self.queue += [("received", received) for received in self.inbox.take()]

    def progress(self) -> Progress:
        idle = not (self.todo or self.in_flight or self.queue or self.committing)
        return Progress(
            idle=idle,
            outbox=self.outbox.links,
            appended=self.outbox.appended,
            applied=self.inbox.applied,
            in_flight=len(self.in_flight),
            work=len(self.todo),
        )

    # -- crawling ---------------------------------------------------------------------------------

    def fetch_more(self) -> None:
        for fingerprint in self.todo:
            if len(self.in_flight) >= 4 or not self.fetching or self.outbox.full:
                break
            if fingerprint not in self.in_flight:
                self.in_flight.add(fingerprint)
                self.cluster.fetches += 1
                self.later(self.cluster.rng.uniform(0.01, 0.2), lambda each=fingerprint: self.fetched(each))

    def fetched(self, fingerprint: bytes) -> None:
        self.queue.append(("page", fingerprint))
        self.after_event()

    # -- the committer ----------------------------------------------------------------------------

    def commit(self) -> None:
        """Begin to commit all that has gathered, in phases with time between them."""
        if self.committing or not self.queue:
            return
        self.committing = True
        group, self.queue = self.queue, []
        self.later(self.cluster.rng.uniform(0.0, self.cluster.commit_max), lambda: self.write_group(group))

    def write_group(self, group: list[tuple[str, object]]) -> None:
        links: list[Link] = []
        foreign: list[tuple[str, list[Link]]] = []
        batch = self.store.batch(sync=self.sync)
        for kind, item in group:
            if kind == "page":
                found = self.cluster.web.children[int.from_bytes(item, "big")]
                fingerprints = np.array([link.fingerprint for link in found], dtype=np.uint64)
                for owner, places in self.cluster.partition.split(fingerprints).items():
                    mine = [found[place] for place in places]
                    if owner == self.name:
                        links += mine
                    else:
                        foreign.append((owner, mine))
                batch.delete(b"t/" + item)
                self.bump(batch, b"u/" + item)
            elif kind == "received":
                links += item.links
        for link in links:
            key = link.fingerprint.to_bytes(8, "big")
            batch.put(b"t/" + key, b"")
            self.bump(batch, b"x/" + key)
        self.outbox.write(foreign)
        self.inbox.write([item for kind, item in group if kind == "received"])
        self.outbox.stage(batch)
        self.inbox.stage(batch)
        self.later(
            self.cluster.rng.uniform(0.0, self.cluster.commit_max), lambda: self.write_batch(batch, group)
        )

    def bump(self, batch: object, key: bytes) -> None:
        pending = [value for other, value in batch.operations if other == key]
        seen = int.from_bytes(pending[-1] if pending else self.store.get(key) or b"", "big")
        batch.put(key, (seen + 1).to_bytes(2, "big"))

    def write_batch(self, batch: object, group: list[tuple[str, object]]) -> None:
        self.store.write(batch)
        self.later(
            self.cluster.rng.uniform(0.0, self.cluster.commit_max), lambda: self.group_committed(group)
        )

    def group_committed(self, group: list[tuple[str, object]]) -> None:
        self.outbox.committed()
        self.inbox.committed()
        for kind, item in group:
            if kind == "page":
                self.in_flight.discard(item)
        self.todo = {key[2:]: value for key, value in scan_prefix(self.store, b"t/")}
        self.committing = False
        self.inbox._check()
        self.fetch_more()
        for cable in tuple(self.cables):
            for session in (cable.dialler, cable.listener):
                if cable.nodes[id(session)] is self:
                    session.pump(self.cluster.now)
        self.after_event()


class Cluster:
    """The nodes, the time, and what goes wrong."""

    def __init__(
        self,
        seed: int,
        *,
        size: int = 3,
        pages: int = 300,
        config: SplitterConfig = CONFIG,
        node_class: type[Node] = Node,
        latency_max: float = 0.05,
        commit_max: float = 0.05,
    ) -> None:
        self.rng = random.Random(seed)
        self.now = 1_000_000.0
        self.latency_max = latency_max
        self.commit_max = commit_max  # each of the three steps of a commit
        self.config = config
        self.names = [f"p{index}" for index in range(size)]
        self.partition = Partition.equal_ranges(self.names)
        self.web = Web(self.rng, pages)
        self.cut_pairs: set[frozenset[str]] = set()
        self.endings: list[str] = []
        self.fetches = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = count()
        self.nodes = {name: node_class(self, name) for name in self.names}
        self._plant_seed()

    def _plant_seed(self) -> None:
        seed = self.web.pages[0]
        store = self.nodes[self.partition.owner(seed.fingerprint)].store
        batch = store.batch(sync=True)
        key = seed.fingerprint.to_bytes(8, "big")
        batch.put(b"t/" + key, b"")
        batch.put(b"x/" + key, (1).to_bytes(2, "big"))
        store.write(batch)

    def at(self, when: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, next(self._count), action))

    def is_cut(self, one: str, other: str) -> bool:
        return frozenset((one, other)) in self.cut_pairs

    def start(self) -> None:
        for node in self.nodes.values():
            node.start()

    def run_until(self, condition: Callable[[], bool], *, limit: float = 3600.0) -> None:
        """Let time pass until `condition`, at most `limit` seconds."""
        end = self.now + limit
        while not condition():
            assert self._events and self._events[0][0] <= end, f"not reached within {limit} s: {self!r}"
            when, _, action = heapq.heappop(self._events)
            self.now = max(self.now, when)
            action()

    def run_for(self, seconds: float) -> None:
        end = self.now + seconds
        self.at(end, lambda: None)
        self.run_until(lambda: self.now >= end, limit=seconds)

    def ended(self) -> bool:
        """Whether every process knows that the crawl has ended."""
        return all(node.up and node.crawlwide.ended for node in self.nodes.values())

    def cables(self) -> list[Cable]:
        up = [node for node in self.nodes.values() if node.up]
        return list({id(cable): cable for node in up for cable in node.cables}.values())

    def counts(self, prefix: bytes) -> dict[int, int]:
        """How often each fingerprint was counted under `prefix`, over all nodes."""
        found: dict[int, int] = {}
        for node in self.nodes.values():
            for key, value in scan_prefix(node.store, prefix):
                number = int.from_bytes(key[2:], "big")
                found[number] = found.get(number, 0) + int.from_bytes(value, "big")
        return found

    def lost(self) -> int:
        """Pages of the web that no node has fetched."""
        return len(self.web.children.keys() - self.counts(b"u/").keys())

    def check_exactly_once(self) -> None:
        """Every link was applied once, at its owner, and every page stored once."""
        expected = dict.fromkeys(self.web.children, 1)
        assert self.counts(b"x/") == expected
        assert self.counts(b"u/") == expected
        for name, node in self.nodes.items():
            applied = [int.from_bytes(key[2:], "big") for key, _ in scan_prefix(node.store, b"x/")]
            assert {self.partition.owner(fingerprint) for fingerprint in applied} <= {name}
        self.check_books()

    def check_books(self) -> None:
        """Nothing waits anywhere, and what was sent is what was applied."""
        nodes = self.nodes.values()
        for node in nodes:
            node.outbox._check()
            node.inbox._check()
            assert node.outbox.links == 0, node.outbox
        assert sum(node.outbox.sent for node in nodes) == sum(node.inbox.applied for node in nodes)

    def __repr__(self) -> str:
        nodes = [
            (node.name, node.up, node.outbox, node.inbox, node.crawlwide) for node in self.nodes.values()
        ]
        return f"Cluster({self.lost()} lost, {nodes})"
