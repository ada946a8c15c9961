"""If an authority cannot be connected to, only this authority waits, not its whole host.

`frontier/README.md`, "Failures", says which failures are charged to an authority, and how dead ports are kept from
taking the turns of a host. Even a thousand dead ports take only one ninth of the host's turns. The waits of a
failing authority grow like those of a failing host. Meanwhile, the host's other authorities are tried first. A
failure is charged to the host only if the host has no other authority to try and the port is the default port of
the scheme.

Only the `ENTRIES_MAX` authorities that failed last are kept in memory. If an authority is forgotten, it is
requested again. The number of failures and the last outcome are also stored, under `z/`, for the verdicts of
the report (`frontier/waiting_urls.py`). Waits are not stored, so every run tries each authority again.
`troubled` contains the hosts whose latest request failed before any answer. The hosts in `troubled` are shown
as failing although no failure is charged to them. After a restart, `troubled` contains only hosts that have
never answered. Durations are in seconds; instants are seconds on the process clock.
"""

import itertools
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from crawler.config import PolitenessConfig
from crawler.frontier.hosts.politeness import backoff
from crawler.frontier.hosts.table import NOWHERE, HostFlag, HostTable
from crawler.records import TLS_FAILURES, Blame, Fetch, Outcome, TaskKind
from crawler.storage.keys import FAILING
from crawler.storage.kv import KeyValue, scan_prefix, seal, unseal

ENTRIES_MAX = 20_000
STRANGER_GAPS = 8
_NAME_AT = 10  # position of the authority's name in a store key, after the prefix and the host key
_UNCONNECTED = TLS_FAILURES | {Outcome.CONNECT_ERROR}


class Charged(NamedTuple):
    """The failures charged to an authority in a row, or to a host's authorities since the host last answered."""

    failures: int = 0
    until: float = 0.0  # the end of the latest wait
    outcome: str = ""  # of the last failure


_NOTHING = Charged()


class Authorities:
    """The failures of each authority."""

    def __init__(self) -> None:
        self._waits: dict[str, Charged] = {}  # oldest failure first
        # Host slot -> the instant from which the host may try another unknown port; the oldest entry first.
        self._strangers: dict[int, float] = {}
        self._stored: set[str] = set()  # authorities whose failures are in the store
        self.troubled: dict[int, Charged] = {}  # by the slots of hosts

    def load(self, store: KeyValue, hosts: HostTable) -> None:
        """Record which authorities have stored failures. Those whose hosts have never answered are added to `troubled`.

        The stored failures of an authority are deleted once it answers.

        Raises:
            DamageError: a value is damaged.
        """
        for key, value in itertools.islice(scan_prefix(store, FAILING), ENTRIES_MAX):
            self._stored.add(key[_NAME_AT:].decode())
            slot = hosts.find(int.from_bytes(key[len(FAILING) : _NAME_AT], "big"))
            if slot != NOWHERE and not hosts.flags[slot] & HostFlag.REACHED:
                failing = msgspec.msgpack.decode(unseal(key, value), type=Failing)
                self.troubled[slot] = Charged(failing.tries, 0.0, failing.outcome)

    def __len__(self) -> int:
        return len(self._waits)

    def charged(self, authority: str) -> Charged:
        """Return the failures of an authority, which may be tried again from `until` on."""
        return self._waits.get(authority, _NOTHING)

    def charged_to_host(self, slot: int) -> Charged:
        """Return the failures charged to authorities of a host since the host last answered."""
        return self.troubled.get(slot, _NOTHING)

    def stranger_at(self, slot: int, authority: str) -> float:
        """Return the instant from which a host may try an unknown authority."""
        return self._strangers.get(slot, 0.0) if names_port(authority) else 0.0

    def note_authority(self, slot: int, authority: str, now: float, gap: float) -> None:
        """Record that a host tries an unknown authority. `gap` is the gap after the host's last answer."""
        if not names_port(authority):
            return
        self._strangers.pop(slot, None)
        self._strangers[slot] = now + STRANGER_GAPS * gap
        if len(self._strangers) > ENTRIES_MAX:
            del self._strangers[next(iter(self._strangers))]

    def failed(
        self, slot: int, authority: str, now: float, config: PolitenessConfig, outcome: Outcome
    ) -> int:
        """Charge a failure to an authority of a host, and delay the authority's next try.

        Return the authority's number of failures in a row.
        """
        failures = self._waits.pop(authority, _NOTHING).failures + 1
        until = now + backoff(failures, config, outcome)
        self._keep(authority, failures, until, outcome)
        self.troubled[slot] = Charged(self.troubled.pop(slot, _NOTHING).failures + 1, until, str(outcome))
        if len(self.troubled) > ENTRIES_MAX:
            del self.troubled[next(iter(self.troubled))]
        return failures

    def failed_robots(self, authority: str, outcome: Outcome) -> int:
        """Record that an authority gave no answer for its robots.txt. The robots cache makes the authority's URLs wait.

        Return the number of failures in a row of this authority.
        """
        failures = self._waits.pop(authority, _NOTHING).failures + 1
        self._keep(authority, failures, 0.0, outcome)
        return failures

    def _keep(self, authority: str, failures: int, until: float, outcome: Outcome) -> None:
        self._waits[authority] = Charged(failures, until, str(outcome))
        if len(self._waits) > ENTRIES_MAX:
            del self._waits[next(iter(self._waits))]
        self._stored.add(authority)

    def answered(self, slot: int, authority: str) -> bool:
        """Forget the failures of an authority after a successful connection, and remove its host from `troubled`.

        Return whether the store has a record of the failures, which must now be deleted.
        """
        self._waits.pop(authority, None)
        self.troubled.pop(slot, None)
        was_stored = authority in self._stored
        self._stored.discard(authority)
        return was_stored


class Failing(NamedTuple):
    """The number of times that an authority has failed in a row, and the outcome of the last failure."""

    tries: int
    outcome: str


def failing_key(host_key: int, authority: str) -> bytes:
    """Return the store key of an authority's failures."""
    return FAILING + host_key.to_bytes(8, "big") + authority.encode()


def failing_record(failing: Failing) -> bytes:
    """Return the stored value of an authority's failures."""
    return seal(msgspec.msgpack.encode(failing))


def stored_failing(store: KeyValue, host_key: bytes) -> dict[str, Failing]:
    """Return the stored failures of a host's authorities; `host_key` is the key of the host, 8 bytes.

    Raises:
        DamageError: a value is damaged.
    """
    return {
        key[_NAME_AT:].decode(): msgspec.msgpack.decode(unseal(key, value), type=Failing)
        for key, value in scan_prefix(store, FAILING + host_key)
    }


def failed_alone(task: TaskKind, fetch: Fetch, authority: str, others: Iterable[str]) -> bool:
    """Return whether a failure is charged to `authority`, not to its host.

    A 429 or 503 is always charged to the host, because all ports of a host usually share one machine.
    `others` are the authorities of the host's URLs.
    """
    if fetch.blame is not Blame.HOST or fetch.outcome is Outcome.HOST_BUSY:
        return False
    if fetch.outcome not in _UNCONNECTED and task is not TaskKind.ROBOTS:
        return False
    return names_port(authority) or any(other != authority for other in others)


def names_port(authority: str) -> bool:
    """Return whether an authority names a port; the canonical form omits the default port of the scheme."""
    return authority.rpartition("]")[2].rpartition("/")[2].count(":") > 0
