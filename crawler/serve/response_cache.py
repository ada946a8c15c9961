"""A cache of ready answers, with or without bodies: it keeps the most recently used answers, up to a number of bytes.

Once the cache is full, an answer is stored only at its second request. So if a client requests every page
once, the answers to this client use no memory, and do not replace answers that are requested often.

An answer is found under its key, or under the last request that got this answer (`remember_request`). A
request that equals this last request need not be parsed.
"""

from collections import OrderedDict
from collections.abc import Hashable, Iterator

import msgspec
from msgspec.structs import replace

from crawler.serve.asked_before import AskedBefore
from crawler.serve.interfaces import Located
from crawler.serve.representation import Representation


class CachedResponse(msgspec.Struct):
    """A copy and its representation. They are valid while the stored record of the URL equals `proof`.

    `key` is the cache key. `writes` is the value of `KeyValue.writes` when the record was last compared
    with `proof` and was equal.
    `revision` is the number of changes of the withdrawals when the answer was built; after another change,
    the answer is not valid. `releases` is the value of `Archive.releases` when the answer was built; an
    answer without a body is not valid after another release, because its copy may have been moved.

    `fetched_at` is the time of the copy. `tried_at` is the time of the page's last answer. It is None if the
    page is not stored now, or if the client gave a time for which it wants the copy. `counted` is the number
    of bytes that a cache counts for the answer, or 0 if it is not cached. If `bodiless` is true, the body is
    read again for each request. `request` is the request under which a cache finds the answer; None if there
    is none. `prepared` is true if the answer was built for a request that has not arrived yet. `cacheable` is false
    if a newer copy could be stored without a change of the record.
    """

    key: Hashable
    located: Located
    revision: int
    proof: bytes
    tried_at: float | None
    fetched_at: float
    ready: Representation
    writes: int = -1
    releases: int = 0
    cacheable: bool = True
    counted: int = 0
    bodiless: bool = False
    request: Hashable = None
    prepared: bool = False

    def copy(self) -> "CachedResponse":
        """Return an uncached copy of this answer with its body."""
        return replace(self, ready=replace(self.ready), counted=0, bodiless=False)


class ResponseCache:
    """An LRU cache of answers; an answer larger than an eighth of the cache is not stored.

    `hits` counts the answers served from the cache; `misses` counts the answers that had to be built.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: OrderedDict[Hashable, CachedResponse] = OrderedDict()
        self._by_request: dict[Hashable, CachedResponse] = {}
        self._asked = AskedBefore()

    def __len__(self) -> int:
        return len(self._kept)

    def find(self, key: Hashable) -> CachedResponse | None:
        """Return the cached answer under `key`, even if it is out of date; None if no answer is cached."""
        return self._kept.get(key)

    def find_by_request(self, request: Hashable) -> CachedResponse | None:
        """Return the cached answer to `request`, even if it is out of date; None if the request is not remembered."""
        return self._by_request.get(request)

    def remember_request(self, request: Hashable, shown: CachedResponse) -> None:
        """Remember the request of a cached answer.

        This request replaces any earlier request that was remembered for the answer.
        """
        self._by_request.pop(shown.request, None)
        shown.request = request
        self._by_request[request] = shown

    def use(self, shown: CachedResponse) -> None:
        """Take note that an answer of this cache was served."""
        self._kept.move_to_end(shown.key)
        shown.prepared = False
        self.hits += 1

    def put(self, shown: CachedResponse) -> bool:
        """Store an answer if it is admitted; return whether it was stored."""
        admitted = self.admits(shown)
        if admitted:
            self.store(shown)
        return admitted

    def admits(self, shown: CachedResponse) -> bool:
        """Return whether an answer may be stored, which requires free room or an earlier request for the answer.

        Remember this request.
        """
        size = shown.ready.size
        if size > self.bytes_max // 8:
            return False
        return self.has_room(size) or shown.key in self._kept or self._asked.before(shown.key)

    def has_room(self, size: int) -> bool:
        """Return whether `size` more bytes fit."""
        return self.bytes + size <= self.bytes_max

    def prepare(self, shown: CachedResponse) -> None:
        """If there is room, store an answer that no client has requested yet; it is the first to be replaced."""
        if self.has_room(shown.ready.size):
            shown.prepared = True
            self.store(shown)
            self._kept.move_to_end(shown.key, last=False)

    def dropping_prepared(self) -> Iterator[None]:
        """Drop the answers that no client has requested yet, with a pause after each."""
        while self._kept and next(iter(self._kept.values())).prepared:
            self._forget(self._kept.popitem(last=False)[1])
            yield

    def store(self, shown: CachedResponse) -> None:
        """Store an answer in place of any other answer under its key."""
        if (old := self._kept.pop(shown.key, None)) is not None:
            self._forget(old)
        self._kept[shown.key] = shown
        if shown.request is not None:
            self._by_request[shown.request] = shown
        shown.counted = shown.ready.size
        self.bytes += shown.counted
        while self.bytes > self.bytes_max:
            self._forget(self._kept.popitem(last=False)[1])

    def _forget(self, shown: CachedResponse) -> None:
        self.bytes -= shown.counted
        shown.counted = 0
        self._by_request.pop(shown.request, None)

    def _check(self) -> None:
        """Assert every invariant."""
        sizes = [shown.ready.size for shown in self._kept.values()]
        assert sizes == [shown.counted for shown in self._kept.values()]
        assert self.bytes == sum(sizes) <= self.bytes_max
        order = [shown.prepared for shown in self._kept.values()]
        assert order == sorted(order, reverse=True), "prepared answers come first"
        for request, shown in self._by_request.items():
            assert shown.request == request and self._kept[shown.key] is shown
