"""Stores links to other processes durably until the owners of the links have confirmed them.

There is one `Spool` per peer. `spool.py` describes keys, numbers and epochs. A group of results is committed in
three phases:

    write(items)   [writer thread]  encode the links of the group, at most `entry_bytes` per entry
    stage(batch)   [writer thread]  put the entries, delete the entries that peers have confirmed
    committed()    [loop thread]    from here on the entries may be sent

`splitter/README.md`, "Unreachable peers", says when a queue is rewritten (`compaction`), and when it is `full`.
"""

import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from crawler.config import SplitterConfig
from crawler.errors import DirectoryError
from crawler.records import Link
from crawler.splitter.compaction import Compaction
from crawler.splitter.spool import Greeting, Spool, SpoolState, Totals, entries_prefix, state_key
from crawler.splitter.wire import encode_entries
from crawler.storage.keys import OUTBOX_STATE
from crawler.storage.kv import Batch, KeyValue, scan_prefix
from crawler.storage.reshard import load, pack

logger = logging.getLogger(__name__)


class BitSource(Protocol):
    """The source of random epochs: `random.SystemRandom()`, or a seeded generator in tests."""

    def getrandbits(self, bits: int, /) -> int: ...


class Outbox:
    """The queues of all peers of this process.

    `clean` is False if the last stop was unclean and the crawl does not sync its writes. Such a stop may have
    lost the newest entries of a queue, although the peer has already received them. So every queue gets a
    fresh epoch, in which its entries are numbered anew.

    Raises:
        DirectoryError: links wait for a process that is not a peer.
        DamageError: an entry or a state is missing or damaged.
    """

    def __init__(
        self,
        store: KeyValue,
        peers: Iterable[str],
        config: SplitterConfig,
        rng: BitSource,
        *,
        clean: bool = True,
    ) -> None:
        self._store = store
        self._config = config
        self._rng = rng
        self._compacting: Compaction | None = None
        # used by the writer thread, between `write` and `stage`
        self._encoded: dict[str, list[tuple[bytes, int]]] = {}
        self._staged: deque[list[Spool]] = deque()
        self.spools: dict[str, Spool] = {}
        self._totals = Totals()
        # Peers whose queues a commit has changed; at first, all peers. The caller clears this set after
        # sending.
        self.news = dict.fromkeys(sorted(peers))
        self._open(list(self.news), clean)

    def _open(self, peers: Sequence[str], clean: bool) -> None:
        self._refuse_strangers(peers)
        batch = self._store.batch(sync=True)
        for peer in peers:
            stored = load(self._store, state_key(peer), SpoolState | None, None)  # type: ignore[arg-type]
            state = stored or SpoolState(self._fresh_epoch())
            if not clean:
                state = state.renumbered(self._fresh_epoch())
            self.spools[peer] = Spool(
                self._store, peer, state, window_bytes=self._config.window_bytes, totals=self._totals
            )
            if state != stored:
                batch.put(state_key(peer), pack(state))
        self._store.write(batch)

    def _refuse_strangers(self, peers: Sequence[str]) -> None:
        for key, _ in scan_prefix(self._store, OUTBOX_STATE):
            name = key[len(OUTBOX_STATE) :].decode()
            if name not in peers and any(scan_prefix(self._store, entries_prefix(name))):
                raise DirectoryError(
                    f"splitter: links wait for {name!r}, which is not a peer; run `crawler reshard`"
                )

    def _fresh_epoch(self) -> bytes:
        return self._rng.getrandbits(64).to_bytes(8, "big")

    # -- the commit phases ------------------------------------------------------------------------

    def write(self, items: Iterable[tuple[str, Sequence[Link]]]) -> None:
        """Encode the pairs (peer, links) of a group (writer thread)."""
        links: dict[str, list[Link]] = {}
        for peer, some in items:
            links.setdefault(peer, []).extend(some)
        for peer, all_links in links.items():
            self._encoded[peer] = encode_entries(all_links, self._config.entry_bytes)

    def stage(self, batch: Batch) -> None:
        """Put the group's entries, and the deletes and state changes that are due, into the batch (writer thread)."""
        encoded, self._encoded = self._encoded, {}
        self._staged.append(
            [spool for peer, spool in self.spools.items() if spool.stage(batch, encoded.get(peer, ()))]
        )

    def committed(self) -> None:
        """Record that the oldest staged group is durable (loop thread).

        From now on, the group's entries may be sent.
        """
        for spool in self._staged.popleft():
            spool.apply_group()
            self.news[spool.peer] = None

    @property
    def urgent(self) -> bool:
        """True if a peer waits for a fresh epoch.

        While it waits, a group must be committed even if the group is empty.
        """
        return self._totals.wanting > 0

    # -- the connections --------------------------------------------------------------------------

    def welcome(self, peer: str, epoch: bytes, durable: int, chain: int, applied: int) -> Greeting:
        """Judge a peer's Welcome, which answers a Hello that contained `epoch`; return the result.

        Any result other than GO_ON ends the connection.
        """
        spool = self.spools[peer]
        greeting = spool.greet(epoch, durable, chain, applied)
        if greeting is Greeting.TAIL_LOST:
            spool.renumber(self._fresh_epoch())
            logger.warning("splitter: %s: %s; its queue is renumbered and sent again", peer, greeting)
        return greeting

    def start_over(self, peer: str) -> None:
        """Accept that a peer has lost confirmed links, and begin a fresh epoch.

        Call this after these links were queued again.
        """
        self.spools[peer].start_over(self._fresh_epoch())

    # -- sizes and totals -------------------------------------------------------------------------

    @property
    def bytes(self) -> int:
        return self._totals.bytes

    @property
    def links(self) -> int:
        """The number of links in the outbox, which are the links that were appended and not confirmed yet."""
        return self._totals.links

    def confirmed_by_peer(self) -> dict[str, int]:
        """Return the number of links that each peer has ever confirmed."""
        return {peer: spool.confirmed.links for peer, spool in self.spools.items()}

    @property
    def appended(self) -> int:
        """The number of links ever appended."""
        return self._totals.appended

    @property
    def sent(self) -> int:
        """The number of links ever confirmed by their owners."""
        return sum(spool.confirmed.links for spool in self.spools.values())

    @property
    def sent_entries(self) -> int:
        """The number of entries ever confirmed by their owners."""
        return sum(spool.confirmed.entries for spool in self.spools.values())

    @property
    def sent_bytes(self) -> int:
        """The size in bytes of all entries that were ever confirmed."""
        return sum(spool.confirmed.bytes for spool in self.spools.values())

    @property
    def repeated(self) -> int:
        """The number of links that compactions have dropped because the same URL was already waiting."""
        return sum(spool.state.repeated for spool in self.spools.values())

    @property
    def full(self) -> bool:
        """True if a queue has reached twice `spool_bytes_max`, so that no more pages should be fetched."""
        mark = 2 * self._config.spool_bytes_max
        return self.bytes >= mark and any(spool.bytes >= mark for spool in self.spools.values())

    @property
    def compacting(self) -> bool:
        """True if a queue is being rewritten; only one is rewritten at a time."""
        return self._compacting is not None

    def compaction(self) -> Compaction | None:
        """Return a compaction, or None if no queue needs one.

        `run` the compaction in a worker thread, and then pass it to `adopt`.
        """
        if self._compacting is not None or self.bytes < self._config.spool_bytes_max:
            return None
        for spool in self.spools.values():
            mark = max(self._config.spool_bytes_max, spool.compacted_bytes * 3 // 2)
            if spool.ready and not spool.connected and spool.bytes >= mark:
                self._compacting = self._compaction(spool)
                return self._compacting
        return None

    def retirement(self, peer: str, matches: Callable[[str], object]) -> Compaction | None:
        """Return a compaction that marks the links whose URLs match as retired; None if none can start now.

        For a connected peer, the result is None, too, because the links for it are being sent. A moment
        later, they are in the peer's own queues.
        """
        spool = self.spools[peer]
        if self._compacting is not None or not spool.ready or spool.connected or not spool.links:
            return None
        self._compacting = self._compaction(spool, matches)
        return self._compacting

    def _compaction(self, spool: Spool, retires: Callable[[str], object] | None = None) -> Compaction:
        return Compaction(
            self._store, spool, self._fresh_epoch(), entry_bytes=self._config.entry_bytes, retires=retires
        )

    def adopt(self, compaction: Compaction) -> bool:
        """Replace a queue by its compacted form in the next commit group; return False if the queue has changed.

        Afterwards, call `Compaction.sweep` in a worker thread. If this method returns True, do so after the
        commit of that group; if it returns False, do so at once.
        """
        assert compaction is self._compacting, compaction
        self._compacting = None
        spool = self.spools[compaction.peer]
        spool.compacted_bytes = compaction.bytes_after
        compaction.adopted = compaction.useful and spool.replace(
            compaction.result(), compaction.acked, compaction.bytes_saved
        )
        return compaction.adopted

    def _check(self) -> None:
        spools = self.spools.values()
        for spool in spools:
            spool._check()
        assert self.bytes == sum(spool.bytes for spool in spools), self
        assert self.links == sum(spool.links for spool in spools), self
        assert self.appended == sum(spool.appended for spool in spools), self
        assert self._totals.wanting == sum(not spool.ready for spool in spools), self

    def __repr__(self) -> str:
        return f"Outbox({', '.join(map(repr, self.spools.values()))})"
