"""Prevents connections to addresses that the crawler must never connect to (`fetcher/README.md`, "Addresses").

A name may resolve to any address. So the guard checks the address of each connection, just before the
connection is opened. Anything that is not a plain address in canonical spelling is denied.
"""

import ipaddress

from crawler.errors import ConfigError
from crawler.urls.ports import BAD_PORTS

DENIED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "168.63.129.16/32",
        "::/96",
        "::ffff:0:0:0/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/32",
        "2001:10::/28",
        "2001:20::/28",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)

_EMBEDDING = (ipaddress.ip_network("::ffff:0:0/96"), ipaddress.ip_network("64:ff9b::/96"))
_MEMO_MAX = 100_000

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _network(text: str) -> _Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise ConfigError(f"network.allow_networks: {error}") from error


class AddressGuard:
    """Decides whether the crawler may connect to an address, and remembers the answers.

    Raises:
        ConfigError: an entry of `allow_networks` is not a network.
    """

    __slots__ = ("_allowed", "_bad_ports", "_memo")

    def __init__(self, allow_networks: tuple[str, ...] = (), allow_ports: tuple[int, ...] = ()) -> None:
        self._allowed = tuple(_network(text) for text in allow_networks)
        self._bad_ports = BAD_PORTS.difference(allow_ports)
        self._memo: dict[str, bool] = {}

    def allows(self, address: str) -> bool:
        """Return whether `address`, an IPv4 or IPv6 literal, is allowed."""
        known = self._memo.get(address)
        if known is None:
            if len(self._memo) >= _MEMO_MAX:
                self._memo.clear()
            known = self._memo[address] = self._judge(address)
        return known

    def allows_port(self, port: int) -> bool:
        """Return whether the crawler may connect to `port`."""
        return port not in self._bad_ports

    def _judge(self, text: str) -> bool:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            return False
        if isinstance(address, ipaddress.IPv6Address):
            if address.scope_id is not None:
                return False
            if self._allows_explicitly(address):
                return True
            if any(address in network for network in _EMBEDDING):
                return self._judge(str(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)))
        return self._allows_explicitly(address) or not any(address in network for network in DENIED_NETWORKS)

    def _allows_explicitly(self, address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        return any(address in network for network in self._allowed)

    def __repr__(self) -> str:
        return f"Guard(allowed={[str(network) for network in self._allowed]}, known={len(self._memo)})"
