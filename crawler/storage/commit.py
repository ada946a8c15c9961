"""The commit point of a process (`storage/README.md`, "The commit point").

Results are queued in FIFO order, either as `Change`s or as functions that make `Change`s. All queued changes,
up to a limit, form one group. Step 0 of a group may run before the previous group is committed:

    0  make       make decisions, in order: filter links, ask the caches, update the hosts
    1  write      append and sync the WARC records and the links log
    2  batch      write one batch, which decides: all keys of the changes, the entries of outbox and inbox,
                  the committed lengths of the files, the counters; then append the lines of pages.jsonl.
                  The batch is synced unless `store.durability` is "process"
    3  committed  only after the batch: free fetch slots, send acknowledgements and the links
                  in the outbox, and add the group's links to the pending links of the DUE

Steps 0 and 3 run in the loop thread. Steps 1 and 2 run in the only writer thread or, if the loop thread has
nothing else to do, in the loop thread. Two groups never run at once. An exception in step 1 or 2 ends the process.

A change with very many links is made by a generator (`Making`) that pauses at intervals: `step` resumes the
generator, and the commit loop may let the event loop run between the calls. A generator that needs a result
of another thread yields a `ThreadWait`. The next change is started only when this change is complete, so the caches
receive the links in queue order. A group contains only complete changes. Step 0 for many pages in a row costs
a fifth less than step 0 for each page right after the page is parsed, because parsing displaces other data
from the processor's caches.
"""

from collections import Counter, deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent import futures
from typing import Any, Protocol

import msgspec

from crawler.errors import StoreError
from crawler.records import Link
from crawler.storage import keys
from crawler.storage.faults import reach
from crawler.storage.kv import Batch, KeyValue, MemoryBatch, seal, unseal


class Participant(Protocol):
    """A stage that has files or keys of its own to commit."""

    def stage(self, batch: Batch) -> None:
        """Add the new lengths of the files to `batch`. Runs in the writer thread."""

    def committed(self) -> None:
        """Note that the batch is durable. Runs in the loop thread."""


class CaptureAppender(Participant, Protocol):
    """The page cache, to which captures are appended. Captures are durable when `write` returns."""

    def write(self, capturings: list[Any]) -> int: ...


class LinkAppender(Participant, Protocol):
    """The DUE's log of pending links."""

    def append(self, links: Sequence[Link]) -> None: ...

    def sync(self) -> None: ...


class Outgoing(Participant, Protocol):
    """The outbox: links for other processes."""

    def write(self, items: Iterable[tuple[str, Sequence[Link]]]) -> None: ...


class Incoming(Participant, Protocol):
    """The inbox: links received from other processes."""

    def write(self, items: Iterable[Any]) -> None: ...


class Change(MemoryBatch):
    """All effects of one result on stored state. A change also serves as a write batch: stages can put keys into it.

    `captures` are appended to the page cache. `links` are the links that were not found in the CLOCK cache;
    they are passed to the DUE. `foreign` links are added to the outboxes of peers. `received` is an entry
    that a peer has sent and that this change applies. `counts` are added to the durable counters.
    `line` is appended to pages.jsonl after the batch. The functions in `after` are called once everything is
    durable. `sync` requests a synced batch even if the crawl's setting for durability does not.
    """

    __slots__ = ("after", "captures", "counts", "foreign", "line", "links", "received")

    def __init__(self, *, sync: bool = False) -> None:
        super().__init__(sync)
        self.captures: list[Any] = []
        self.links: list[Link] = []
        self.foreign: list[tuple[str, list[Link]]] = []
        self.received: Any = None
        self.counts: dict[str, int] = {}
        self.line: bytes = b""
        self.after: list[Callable[[], None]] = []

    def count(self, name: str, n: int = 1) -> None:
        if n:
            self.counts[name] = self.counts.get(name, 0) + n


class ThreadWait(Protocol):
    """Yielded by a generator that waits for another thread. It goes on once `ended` is done, or no time is left."""

    ended: "futures.Future[None]"

    def left(self) -> float:
        """Return the number of seconds that the generator still waits; 0 or less if it goes on at once."""


Pause = ThreadWait | None
Making = Generator[Pause, None, Change]  # a generator that pauses wherever other work may be done
Maker = Callable[[], Change | Making]


def steps(made: Change | Making) -> Making:
    """Return the result of a maker as a generator, even if the maker is a plain function."""
    return made if isinstance(made, Change) else (yield from made)


def followed_by(maker: Maker, *after: Callable[[], None]) -> Maker:
    """Return a maker of the same change. When the change is durable, the functions `after` are called, too."""

    def make() -> Making:
        change = yield from steps(maker())
        change.after += after
        return change

    return make


class CommitPoint:
    """Queues changes and commits them group by group.

    For each group, the commit loop calls `take` in the loop thread, `write` in the writer thread, and
    `committed` in the loop thread. It handles one group at a time.
    """

    def __init__(
        self,
        store: KeyValue,
        *,
        pages: CaptureAppender,
        due: LinkAppender,
        outbox: Outgoing | None = None,
        inbox: Incoming | None = None,
        group_entries_max: int,
        sync: bool,
    ) -> None:
        self._store = store
        self._pages, self._due, self._outbox, self._inbox = pages, due, outbox, inbox
        self._group_entries_max = group_entries_max
        self._sync = sync
        self._queue: deque[Change | Maker] = deque()
        # functions passed to `add_heavy`; they start when no other change is left to make
        self._heavy: deque[Maker] = deque()
        self.unmade = 0  # number of queued functions that have not made their changes
        self._making: Making | None = None  # the generator that makes the first queued change, while it runs
        self.wait: ThreadWait | None = (
            None  # what this generator waits for; `step` blocks until the wait is over
        )
        self._made: deque[Change] = deque()  # complete changes, queued before the one that is being made
        self.counters: Counter[str] = Counter(load_counters(store))
        self.groups = 0

    def __len__(self) -> int:
        return len(self._made) + (self._making is not None) + len(self._queue) + len(self._heavy)

    @property
    def light(self) -> int:
        """The number of queued changes, not counting functions passed to `add_heavy` that have not started."""
        return len(self) - len(self._heavy)

    @property
    def unmade_light(self) -> int:
        """The number of queued functions that have not started, not counting those passed to `add_heavy`."""
        return self.unmade - len(self._heavy)

    @property
    def made(self) -> int:
        """The number of queued changes that are complete."""
        return len(self._made)

    def add(self, change: Change | Maker) -> None:
        """Queue a change, or a function that makes a change. The change takes effect when its group is committed.

        If a change depends on state that queued changes alter, pass a function. Functions are called in queue
        order.
        """
        self._queue.append(change)
        self.unmade += not isinstance(change, Change)

    def add_heavy(self, maker: Maker) -> None:
        """Queue a function that needs a long time to make its change. Such functions run last, one at a time."""
        self._heavy.append(maker)
        self.unmade += 1

    def drop_heavy(self) -> None:
        """Drop the functions passed to `add_heavy` that have not started.

        The fetches for which they were queued then count as unfinished.
        """
        self.unmade -= len(self._heavy)
        self._heavy.clear()

    def make(self) -> None:
        """Make all queued changes, except heavy changes that have not started.

        Call this before any decision that is made outside of the queue.
        """
        while self._making is not None or self._queue:
            self.step()

    def making(self) -> Generator[None, None, None]:
        """Make all queued changes, as `make` does, but as a generator that pauses at intervals."""
        while self._making is not None or self._queue:
            self.step()
            yield

    def step(self, *, heavy: bool = True) -> bool:
        """Make changes up to the next pause; return False if none is left to make.

        Heavy changes start only with `heavy`. To keep the caller's thread free, wait for `wait` before the call.
        """
        if self.wait is not None:
            futures.wait([self.wait.ended], max(0.0, self.wait.left()))
        if self._making is None:
            if not self._queue and not (heavy and self._heavy):
                return False
            change = self._queue.popleft() if self._queue else self._heavy.popleft()
            if isinstance(change, Change):
                self._made.append(change)
                return True
            self.unmade -= 1
            made = change()
            if isinstance(made, Change):
                self._made.append(made)
                return True
            self._making = made
        self.wait = None
        try:
            self.wait = next(self._making)
        except StopIteration as end:
            self._making = None
            self._made.append(end.value)
        return True

    def take(self) -> list[Change]:
        """Make the next group of at most `group_entries_max` changes, remove it from the queue, and return it."""
        while len(self._made) < self._group_entries_max and self.step():
            pass
        return self.take_made()

    def take_made(self) -> list[Change]:
        """Remove and return the next group of changes that are already made."""
        made = self._made
        return [made.popleft() for _ in range(min(len(made), self._group_entries_max))]

    def write(self, group: Sequence[Change]) -> None:
        """Make a group durable. Runs in the writer thread.

        Raises:
            StoreError: writing to a file or to the store failed; the process must end.
        """
        try:
            self._write_files(group)
            self._write_batch(group)
        except OSError as error:
            raise StoreError(f"commit: {error}") from error

    def _write_files(self, group: Sequence[Change]) -> None:
        captures = [capture for change in group for capture in change.captures]
        if captures and (bare := self._pages.write(captures)):
            self.counters["bodies.unwritten"] += bare
        reach("record appended")
        links = [link for change in group for link in change.links]
        if links:
            self._due.append(links)
            if self._sync:
                self._due.sync()
        reach("synced")
        if self._outbox is not None:
            self._outbox.write([foreign for change in group for foreign in change.foreign])
        if self._inbox is not None:
            self._inbox.write([change.received for change in group if change.received is not None])

    def _write_batch(self, group: Sequence[Change]) -> None:
        batch = self._store.batch(sync=self._sync or any(change.sync for change in group))
        counters = self.counters
        # Changes of one group often put the same key, such as that of a host.
        latest: dict[bytes, bytes | None] = {}
        for change in group:
            latest.update(change.operations)
            for name, n in change.counts.items():
                counters[name] += n
        for key, value in latest.items():
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
        for participant in (self._pages, self._due, self._outbox, self._inbox):
            if participant is not None:
                participant.stage(batch)
        self.put_counters(batch)
        self._store.write(batch)
        reach("batch written")

    def put_counters(self, batch: Batch) -> None:
        batch.put(keys.COUNTERS, seal(msgspec.msgpack.encode(dict(self.counters))))

    def committed(self, group: Sequence[Change]) -> None:
        """Call the functions in `after`, which had to wait until the group was durable. Runs in the loop thread."""
        self.groups += 1
        for participant in (self._pages, self._due, self._outbox, self._inbox):
            if participant is not None:
                participant.committed()
        for change in group:
            for action in change.after:
                action()
            # the actions refer to the change, and the change refers to them; if they were not removed here,
            # both would stay in memory
            change.after.clear()
        reach("committed")

    def __repr__(self) -> str:
        return f"CommitPoint({len(self)} queued, {self.groups} groups)"


def load_counters(store: KeyValue) -> dict[str, int]:
    """Return the durable counters. For a new store, the dictionary is empty."""
    value = store.get(keys.COUNTERS)
    return {} if value is None else msgspec.msgpack.decode(unseal(keys.COUNTERS, value), type=dict[str, int])
