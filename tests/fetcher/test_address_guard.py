"""Test the address guard (`fetcher/README.md`, "Addresses"; IANA special-purpose registries)."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import ConfigError
from crawler.fetcher.address_guard import DENIED_NETWORKS, AddressGuard

PUBLIC = [
    "1.1.1.1",
    "8.8.8.8",
    "9.255.255.255",
    "11.0.0.0",
    "100.63.255.255",
    "100.128.0.0",
    "126.255.255.255",
    "128.0.0.0",
    "172.15.255.255",
    "172.32.0.0",
    "192.0.1.0",
    "192.88.98.255",
    "192.167.255.255",
    "198.17.255.255",
    "198.20.0.0",
    "223.255.255.255",
    "168.63.129.15",
    "2606:4700::1111",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::808:808",
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_are_allowed(address: str) -> None:
    assert AddressGuard().allows(address)


@pytest.mark.parametrize("network", DENIED_NETWORKS)
def test_both_ends_of_each_denied_network(network: str) -> None:
    parsed = ipaddress.ip_network(network)
    guard = AddressGuard()
    for address in (parsed[0], parsed[-1]):
        assert not guard.allows(str(address))
        if parsed.version == 4:
            assert not guard.allows(f"::ffff:{address}")
            assert not guard.allows(str(ipaddress.ip_address("64:ff9b::") + int(address)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "1.1.1.1 ",
        "1.1.1.1%eth0",
        "2600::1%1",
        "[::1]",
    ],
)
def test_anything_but_a_plain_address_is_denied(text: str) -> None:
    assert not AddressGuard().allows(text)


def test_a_part_of_a_denied_network_can_be_allowed() -> None:
    guard = AddressGuard(("127.0.0.0/29", "fd00::/64"))
    assert guard.allows("127.0.0.7") and guard.allows("::ffff:127.0.0.7") and guard.allows("fd00::5")
    assert (
        not guard.allows("127.0.0.8") and not guard.allows("fd00:0:0:1::5") and not guard.allows("10.0.0.1")
    )


def test_bad_network_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="allow_networks"):
        AddressGuard(("127.0.0.0/99",))


@given(st.ip_addresses())
def test_the_guard_agrees_with_a_scan_of_all_networks(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    """Each address is judged twice, because verdicts are remembered. The networks that embed IPv4 are left out."""
    if any(address in ipaddress.ip_network(net) for net in ("::ffff:0:0/96", "64:ff9b::/96")):
        return
    guard = AddressGuard()
    expected = not any(address in ipaddress.ip_network(network) for network in DENIED_NETWORKS)
    assert guard.allows(str(address)) is expected
    assert guard.allows(str(address)) is expected


def test_ports_of_other_protocols_are_refused_unless_allowed() -> None:
    """The ports are the "bad ports" of WHATWG Fetch."""
    guard = AddressGuard(allow_ports=(6000,))
    assert not any(map(AddressGuard().allows_port, (25, 6000, 6667, 10080)))
    assert all(map(guard.allows_port, (6000, 80, 443, 8080))) and not guard.allows_port(25)
