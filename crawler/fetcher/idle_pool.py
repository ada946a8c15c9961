"""Keeps a limited number of idle connections, at most one per host.

A connection is kept about as long as the gap of its host lasts. The pool is a plain object; `now` is
monotonic time. The protocol `Idle` lists what the pool needs of a connection. If a connection leaves the pool
other than by `take` or `forget`, the pool closes it.
"""

from itertools import islice
from typing import Generic, Protocol, TypeVar

Authority = tuple[str, str, int, str]  # scheme, host name, port and TLS mode


class Idle(Protocol):
    """A connection without a request in progress."""

    key: Authority
    address: str
    idle_until: float
    lost: bool

    def close(self) -> None: ...


_C = TypeVar("_C", bound=Idle)


class IdlePool(Generic[_C]):
    """Holds at most `entries_max` connections, one per host name."""

    __slots__ = ("_by_hostname", "_entries_max")

    def __init__(self, entries_max: int) -> None:
        self._by_hostname: dict[str, _C] = {}
        self._entries_max = entries_max

    def add(self, connection: _C, now: float, keep: float) -> None:
        """Hold `connection` for `keep` seconds; if the pool is full, close the connection held longest."""
        hostname = connection.key[1]
        self._close(hostname)
        connection.idle_until = now + keep
        self._by_hostname[hostname] = connection
        if len(self._by_hostname) > self._entries_max:
            self._close(next(iter(self._by_hostname)))

    def take(self, key: Authority, addresses: tuple[str, ...], now: float) -> _C | None:
        """Take the host's connection if it is alive, its authority is `key`, and its address is in `addresses`."""
        connection = self._by_hostname.pop(key[1], None)
        if connection is None:
            return None
        if (
            connection.key == key
            and not connection.lost
            and now < connection.idle_until
            and (not addresses or connection.address in addresses)
        ):
            return connection
        connection.close()
        return None

    def forget(self, connection: _C) -> None:
        """Remove `connection`, which was lost."""
        if self._by_hostname.get(connection.key[1]) is connection:
            del self._by_hostname[connection.key[1]]

    def expire(self, now: float, closed_max: int) -> None:
        """Close up to `closed_max` connections whose time is over. With TLS, this takes up to half a millisecond each."""
        over = (name for name, held in self._by_hostname.items() if now >= held.idle_until)
        for hostname in list(islice(over, closed_max)):
            self._close(hostname)

    def _close(self, hostname: str) -> None:
        connection = self._by_hostname.pop(hostname, None)
        if connection is not None:
            connection.close()

    def __len__(self) -> int:
        return len(self._by_hostname)

    def _check(self) -> None:
        assert len(self._by_hostname) <= self._entries_max
        for hostname, connection in self._by_hostname.items():
            assert connection.key[1] == hostname, (hostname, connection)

    def __repr__(self) -> str:
        return f"IdlePool({len(self._by_hostname)}/{self._entries_max})"
