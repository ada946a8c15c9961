"""Test the choice of free ports."""

import socket
from pathlib import Path

import pytest

from crawler.cli import loopback
from crawler.errors import UsageError


def test_a_free_port_is_not_taken_by_a_connection_before_its_use() -> None:
    """The system chooses the ports of connections from its own range. One such port was taken before its use."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = loopback.free_ports(20)
    assert len(set(ports)) == 20 and max(ports) < first


def test_ports_in_use_are_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        held_port = held.getsockname()[1]
        monkeypatch.setattr(loopback, "_PORTS", [held_port])
        monkeypatch.setattr(loopback, "_TRIES", 1)
        with pytest.raises(UsageError, match="fewer than 1 ports"):
            loopback.free_port()
    assert loopback.free_port() == held_port
