"""Makes splitters of two processes, and sessions between them without sockets. `exchange` transfers the bytes."""

import random
from typing import Any, NamedTuple

import msgspec

from crawler.config import SplitterConfig
from crawler.records import Link
from crawler.splitter.coordination import Coordination, Progress
from crawler.splitter.doorkeeper import Doorkeeper
from crawler.splitter.inbox import Inbox, Received
from crawler.splitter.outbox import Outbox
from crawler.splitter.partition import Partition
from crawler.splitter.session import Common, Dialler, Identity, Listener, SessionState
from crawler.storage.kv import MemoryStore
from tests.splitter.links import make_links

CONFIG = SplitterConfig(window_bytes=2000, entry_bytes=300, frame_bytes_max=4096)
NAMES = ["p0", "p1", "p2"]


def process(name: str, **changes: object) -> Common:
    """Return the splitter of one process. `changes` modify its identity, its bucket table or its secret.

    The process starts with `store`, or with an empty store by default. `clean` is True if the last stop of
    the process lost no write.
    """
    rng = random.Random(f"{name} {sorted(changes)}")
    store, clean = changes.pop("store", None) or MemoryStore(), bool(changes.pop("clean", True))
    boot = rng.randbytes(8)
    partition = changes.pop("partition", None) or Partition.equal_ranges(NAMES)
    peers = [other for other in NAMES if other != name]
    secret = changes.pop("secret", b"a secret of the crawl")
    identity = msgspec.structs.replace(Identity("crawl", name, boot, 1, b"check"), **changes)
    outbox = Outbox(store, peers, CONFIG, rng, clean=clean)
    inbox = Inbox(store, partition, name, peers, CONFIG)
    coordination = Coordination(name, NAMES, identity.boot, Progress)
    common = Common(identity, partition, outbox, inbox, coordination, CONFIG, rng, secret=secret)
    common_store[id(common)] = store
    return common


common_store: dict[int, MemoryStore] = {}


def commit(common: Common, items: list[tuple[str, list[Link]]] | None = None) -> list[Received]:
    """Commit the received entries and `items`, the new links, as one group; return the received entries."""
    received = common.inbox.take()
    store = common_store[id(common)]
    batch = store.batch(sync=True)
    common.outbox.write(items or [])
    common.inbox.write(received)
    common.outbox.stage(batch)
    common.inbox.stage(batch)
    store.write(batch)
    common.outbox.committed()
    common.inbox.committed()
    return received


def links_for(name: str, count: int) -> list[Link]:
    first, last = next(
        (first, last) for each, first, last in Partition.equal_ranges(NAMES).ranges() if each == name
    )
    return make_links(random.Random(count), count, first=first, last=last)


class Ends(NamedTuple):
    """Both ends of a session, and the doorkeeper of the listener."""

    dialler: Dialler
    listener: Listener
    door: Doorkeeper


def pair(
    one: Common,
    other: Common,
    *,
    to: str = "p1",
    door: Doorkeeper | None = None,
    own_door: Doorkeeper | None = None,
    now: float = 0.0,
) -> Ends:
    """Return both ends of a session between `one` and `other`; the dialler dials the process `to`.

    `door` is the doorkeeper of the listener, and `own_door` is the doorkeeper of the dialler.
    """
    door = Doorkeeper(sessions_max=6) if door is None else door
    listener = Listener(other, door.admit, now)
    door.enter(listener)
    own_door = Doorkeeper(sessions_max=6) if own_door is None else own_door
    return Ends(Dialler(one, to, own_door.accept, now), listener, door)


def exchange(ends: Ends, now: float = 0.0) -> None:
    """Transfer bytes in both directions until neither side has any bytes to send."""
    while True:
        there, back = ends.dialler.data_to_send(), ends.listener.data_to_send()
        if not there and not back:
            return
        ends.listener.receive(there, now)
        ends.dialler.receive(back, now)


def greeted(one: Common, other: Common, *, now: float = 0.0, **how: Any) -> Ends:
    """Return both ends of a session, after the greeting or its refusal. `how` is as for `pair`."""
    ends = pair(one, other, now=now, **how)
    exchange(ends, now)
    return ends


def streaming(now: float = 0.0) -> tuple[Common, Common, Ends]:
    one, other = process("p0"), process("p1")
    ends = greeted(one, other, now=now)
    assert ends.dialler.state is ends.listener.state is SessionState.STREAMING
    return one, other, ends
