"""Caches the robots.txt of each authority, in memory and in the store (`robots/README.md`, "Answers").

An authority ("scheme://host[:port]") is in one of these states, which determines the answer of `verdict`:

    nothing known ------ FETCH
    a good answer ------ its rules, or all allowed, for `copy_max_age` (see `_age_max`); then FETCH
    unreachable -------- an earlier good answer applies until it expires; then WAIT until the next try, then
                         FETCH; after `unreachable_max`, all is allowed

Parsed copies of the most recently used authorities stay in memory: at most `entries_max` copies, with at most 4
KiB each on average. So one huge file cannot displace thousands of others.

The cache takes part in the commit in three steps. `record` immediately changes the copy in memory (loop
thread). `stage` puts everything recorded since its last call into the batch (writer thread). After the
commit, `committed` drops the copies in the batch from the list of unsaved copies (loop thread). If a crash
loses a copy, the file is fetched again.
"""

import hashlib
import math
from collections import OrderedDict, deque
from collections.abc import Generator
from enum import StrEnum
from itertools import islice
from typing import Any

import msgspec

from crawler.clock import past
from crawler.config import RobotsConfig
from crawler.errors import DamageError
from crawler.records import BUSY_STATUSES, TLS_FAILURES, Outcome
from crawler.robots.rules import Parsed, RobotsRules, reading
from crawler.storage.keys import ROBOTS
from crawler.storage.kv import Batch, KeyValue, seal, unseal
from crawler.urls.canonical import canonical

ENTRY_BYTES_MEAN = 4096  # memory allowed per entry of the cache, on average over all entries


class VerdictKind(StrEnum):
    """The possible verdicts on a URL."""

    ALLOWED = "allowed"
    DENIED = "denied"
    FETCH = "fetch"
    WAIT = "wait"


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """The verdict on a URL. Only WAIT has `until`, the time to ask again, and `cause`, the reason."""

    kind: VerdictKind
    until: float = 0.0
    cause: str = ""


ALLOWED = Verdict(VerdictKind.ALLOWED)
DENIED = Verdict(VerdictKind.DENIED)
FETCH = Verdict(VerdictKind.FETCH)


class RobotsResult(StrEnum):
    """The meaning of an answer to the request for robots.txt (RFC 9309, 2.3.1)."""

    RULES = "rules"
    UNAVAILABLE = "unavailable"
    UNREACHABLE = "unreachable"


def result_of(status: int, outcome: Outcome, *, complete: bool) -> RobotsResult:
    """Return the meaning of the last answer, which came after at most five redirects.

    A 3xx status means that there were too many redirects, or that a redirect had no target. If there was no
    answer, `status` is 0.
    """
    if outcome in (Outcome.FETCHED, Outcome.EMPTY) and 200 <= status < 300:
        return RobotsResult.RULES if complete else RobotsResult.UNREACHABLE
    if outcome == Outcome.TRUNCATED and 200 <= status < 300 and complete:
        return RobotsResult.RULES
    if 300 <= status < 400 or (400 <= status < 500 and status not in BUSY_STATUSES):
        return RobotsResult.UNAVAILABLE
    return RobotsResult.UNREACHABLE


Recording = Generator[None, None, RobotsResult]


class RobotsSource(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The origin of a copy's rules: the URL that answered, the time of the request, the status and the SHA-256."""

    url: str
    at: float
    status: int
    digest: bytes = b""


class RobotsCopy(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The stored state of an authority.

    `parsed` is the last good answer, or None if there never was one. `fetched_at` is the time of this answer.
    `source` is its origin, or None for copies stored by earlier versions. `failures` counts the consecutive
    tries since `unreachable_since` that found the file unreachable. `retry_at` is the time of the next try.
    """

    parsed: Parsed | None = None
    fetched_at: float = 0.0
    failures: int = 0
    unreachable_since: float = 0.0
    retry_at: float = 0.0
    status: int = 0
    outcome: str = ""
    source: RobotsSource | None = None


_decoder = msgspec.msgpack.Decoder(RobotsCopy)


class _Entry:
    """A copy in memory, with its rules ready for matching."""

    __slots__ = ("copy", "named", "rules")

    def __init__(self, copy: RobotsCopy) -> None:
        self.copy = copy
        self.rules = RobotsRules(copy.parsed) if copy.parsed is not None else None
        self.named: frozenset[str] | None = None  # request forms of the sitemaps, computed on first use

    @property
    def weight(self) -> int:
        return self.rules.weight if self.rules is not None else 300


_UNKNOWN = _Entry(RobotsCopy())
NO_RULES = RobotsRules(Parsed())


class RobotsCache:
    """The robots.txt of all authorities, for one product token; at most `entries_max` parsed copies in memory."""

    def __init__(
        self,
        store: KeyValue,
        config: RobotsConfig,
        token: str,
        entries_max: int,
        *,
        crawl_delay_max: float = 86_400.0,
    ) -> None:
        assert entries_max > 0
        self._crawl_delay_max = crawl_delay_max
        self._store = store
        self._config = config
        self._token = token
        self._entries_max = entries_max
        self._entries: OrderedDict[str, _Entry] = OrderedDict()
        self._weight = 0
        # Copies to be staged. Two threads may use the deque without a lock, because operations on its ends
        # are atomic.
        self._recorded: deque[tuple[bytes, bytes]] = deque()
        self._unsaved: dict[bytes, bytes] = {}  # recorded copies that the store may not hold yet
        self.hits = 0
        self.misses = 0
        # The number of rules that were ignored because their file has more than `rules_max` or
        # `wildcards_max`.
        self.rules_ignored = 0
        self.sitemaps_ignored = 0  # number of Sitemap lines ignored beyond `sitemaps_max`

    def verdict(self, authority: str, target: str, now: float, *, policy: str = "") -> Verdict:
        """Return whether `target` (path and query) of `authority` may be requested at `now`.

        `policy`, if given, replaces the configured policy for this authority; "ignore" allows everything.
        """
        if (policy or self._config.policy) == "ignore":
            return ALLOWED
        entry = self._entry(authority)
        copy = entry.copy
        if entry.rules is not None and abs(now - copy.fetched_at) < self._age_max(entry.rules):
            return ALLOWED if entry.rules.allowed(target) else DENIED
        if copy.failures == 0 or not 0.0 < copy.retry_at - now <= self._wait_behind(copy):
            return FETCH
        if now - copy.unreachable_since >= self._config.unreachable_max:
            return ALLOWED
        return Verdict(VerdictKind.WAIT, copy.retry_at, copy.outcome)

    def recording(
        self,
        authority: str,
        *,
        status: int,
        outcome: Outcome,
        body: bytes,
        complete: bool,
        now: float,
        batch: Batch | None = None,
        url: str = "",
        asked_at: float = 0.0,
    ) -> Recording:
        """Record the final answer for `authority`'s robots.txt; return the meaning of the answer.

        Args:
            status, outcome: those of the last answer, which came after at most five redirects.
                A sixth redirect is passed as the last answer.
            body: the body without its content coding.
            complete: False if the body is shorter than announced. If the transfer was ended at `bytes_max`,
                it does not matter whether `complete` is True or False.
            url, asked_at: the URL that answered, and when it was requested.
            batch: receives the copy; without a batch, the copy waits for `stage`.

        This generator pauses while it reads a long file. The cache is changed only when the generator ends.
        """
        cut = len(body) >= self._config.bytes_max
        result = result_of(status, outcome, complete=complete or cut)
        if result is RobotsResult.UNREACHABLE:
            copy = self._failed(self._entry(authority).copy, status, outcome, now)
        else:
            parsed = Parsed()
            if result is RobotsResult.RULES:
                parsed = yield from self._read(self._whole_lines(body, complete))
            digest = hashlib.sha256(body).digest() if result is RobotsResult.RULES else b""
            source = RobotsSource(url or f"{authority}/robots.txt", asked_at or now, status, digest)
            copy = RobotsCopy(parsed, fetched_at=now, status=status, outcome=outcome, source=source)
        self._keep(authority, _Entry(copy))
        key, value = _key(authority), seal(msgspec.msgpack.encode(copy))
        if batch is None:
            self._unsaved[key] = value
            self._recorded.append((key, value))
        else:
            batch.put(key, value)
        return result

    def record(self, authority: str, **answer: Any) -> RobotsResult:
        """Record the final answer for `authority`'s robots.txt as `recording` does, but without pauses."""
        recording = self.recording(authority, **answer)
        while True:
            try:
                next(recording)
            except StopIteration as end:
                result: RobotsResult = end.value
                return result

    def crawl_delay(self, authority: str) -> float | None:
        """Return the Crawl-delay of the last good copy in seconds, or None if it states none."""
        return self.rules(authority).crawl_delay

    def line(self, authority: str, target: str) -> str:
        """Return the line of the last good copy that decides on `target`; "" if none does."""
        rule = self.rules(authority).rule(target)
        return "" if rule is None else rule.line

    def names(self, authority: str, map_url: str) -> bool:
        """Return whether the last good copy lists the sitemap `map_url` (request form). Their forms are computed once."""
        entry = self._entry(authority)
        if entry.rules is None:
            return False
        if entry.named is None:
            lines = entry.rules.sitemaps[: self._config.sitemaps_max]
            entry.named = frozenset(filter(None, map(canonical, lines)))
        return map_url in entry.named

    def copy(self, authority: str) -> RobotsCopy:
        """Return the stored state of `authority`, or `RobotsCopy()` if there is none."""
        return self._entry(authority).copy

    def rules(self, authority: str) -> RobotsRules:
        """Return the rules of the last good copy of `authority`; there are no rules if there is no such copy."""
        return self._entry(authority).rules or NO_RULES

    def copies(self, host: str, limit: int) -> list[tuple[str, RobotsCopy]]:
        """Return (authority, stored state) for up to `limit` authorities of a host, ordered by name."""
        found: list[tuple[str, RobotsCopy]] = []
        for scheme in ("http", "https"):
            begin = _key(f"{scheme}://{host}")
            with_port = islice(self._store.scan(begin + b":", begin + b";"), limit)
            keys = {begin, *(key for key, _ in with_port)}
            keys.update(key for key in self._unsaved if key.startswith(begin + b":"))
            for key in sorted(keys):
                authority = key[len(ROBOTS) :].decode("utf-8", "surrogatepass")
                entry = self._entries.get(authority)
                copy = entry.copy if entry is not None else self._load(key)
                if copy is not None and entry is not _UNKNOWN:
                    found.append((authority, copy))
        return found[:limit]

    def stage(self, batch: Batch) -> None:
        """Put everything recorded since the last call into `batch`. Writer thread."""
        while self._recorded:
            batch.put(*self._recorded.popleft())

    def committed(self) -> None:
        """Remove those copies from `_unsaved` that are in the store now. Loop thread, at any time."""
        for key, value in list(self._unsaved.items()):
            if self._store.get(key) == value:
                del self._unsaved[key]

    def _age_max(self, rules: RobotsRules) -> float:
        """Return the time for which a copy is used: `copy_max_age`, or two Crawl-delays if these are longer.

        A page may only be requested a Crawl-delay after robots.txt. So if this delay were as long as the time
        for which the copy is used, only robots.txt would ever be requested.
        """
        return max(self._config.copy_max_age, 2.0 * min(rules.crawl_delay or 0.0, self._crawl_delay_max))

    def _failed(self, before: RobotsCopy, status: int, outcome: Outcome, now: float) -> RobotsCopy:
        since = past(before.unreachable_since, now) if before.failures else now
        if now - since >= self._config.unreachable_max:
            delay = float(self._config.copy_max_age)
        else:
            delay = self._delay(before.failures, outcome)
        return RobotsCopy(
            before.parsed,
            before.fetched_at,
            before.failures + 1,
            since,
            now + delay,
            status,
            outcome,
            before.source,
        )

    def _read(self, body: bytes) -> Generator[None, None, Parsed]:
        """Read a file up to the limits, and count the rules and sitemaps beyond them."""
        config = self._config
        parsed = yield from reading(
            body, self._token, rules_max=config.rules_max, wildcards_max=config.wildcards_max
        )
        self.rules_ignored += parsed.ignored
        self.sitemaps_ignored += max(0, len(parsed.sitemaps) - config.sitemaps_max)
        return msgspec.structs.replace(parsed, sitemaps=parsed.sitemaps[: config.sitemaps_max])

    def _wait_behind(self, copy: RobotsCopy) -> float:
        """Return the longest possible time until `retry_at`.

        This time is the delay that followed the last failure, plus one second. If `retry_at` is further
        ahead, the clock was wrong when `retry_at` was set.
        """
        day = float(self._config.copy_max_age)
        is_daily = copy.retry_at - day - copy.unreachable_since >= self._config.unreachable_max
        return 1.0 + max(self._delay(copy.failures - 1, copy.outcome), day if is_daily else 0.0)

    def _delay(self, failures: int, outcome: str) -> float:
        """Return the retry delay after a failure that follows `failures` consecutive failures."""
        if outcome in TLS_FAILURES and failures:
            # The delay is as long as for pages (`TLS_WAIT`), because a bad certificate is seldom replaced
            # within hours.
            return float(self._config.copy_max_age)
        delays = self._config.unreachable_delays
        return float(delays[min(failures, len(delays) - 1)])

    def _whole_lines(self, body: bytes, complete: bool) -> bytes:
        """Return the first `bytes_max` bytes of `body`, without the line that this limit cuts."""
        limit = self._config.bytes_max
        if len(body) < limit or (len(body) == limit and complete):
            return body
        cut = body[:limit]
        if body[limit : limit + 1] in (b"\n", b"\r"):
            return cut
        return cut[: max(cut.rfind(b"\n"), cut.rfind(b"\r")) + 1]

    def _entry(self, authority: str) -> _Entry:
        entry = self._entries.get(authority)
        if entry is not None:
            self._entries.move_to_end(authority)
            self.hits += 1
            return entry
        self.misses += 1
        copy = self._load(_key(authority))
        entry = _UNKNOWN if copy is None else _Entry(copy)
        self._keep(authority, entry)
        return entry

    def _load(self, key: bytes) -> RobotsCopy | None:
        """Return the stored copy; None if there is none, or if it is damaged and must be fetched again."""
        value = self._unsaved.get(key) or self._store.get(key)
        if value is None:
            return None
        try:
            return _decoder.decode(unseal(key, value))
        except (DamageError, msgspec.MsgspecError):
            return None

    def _keep(self, authority: str, entry: _Entry) -> None:
        before = self._entries.pop(authority, None)
        self._weight += entry.weight - (before.weight if before is not None else 0)
        self._entries[authority] = entry
        while len(self._entries) > 1 and self._is_full():
            _, oldest = self._entries.popitem(last=False)
            self._weight -= oldest.weight

    def _is_full(self) -> bool:
        return len(self._entries) > self._entries_max or self._weight > self._entries_max * ENTRY_BYTES_MEAN

    def _check(self) -> None:
        assert self._weight == sum(entry.weight for entry in self._entries.values())
        assert len(self._entries) <= 1 or not self._is_full()
        assert all(math.isfinite(entry.copy.retry_at) for entry in self._entries.values())

    def __repr__(self) -> str:
        entries, weight, unsaved, hits = len(self._entries), self._weight, len(self._unsaved), self.hits
        return f"RobotsCache({entries=}, {weight=}, {unsaved=}, {hits=}, misses={self.misses})"


def _key(authority: str) -> bytes:
    return ROBOTS + authority.encode("utf-8", "surrogatepass")
