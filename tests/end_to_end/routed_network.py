"""Starts a browser in a network from which packets can leave, and records every packet that it sends.

This program replaces `crawler/render/launch.py` and has the same arguments. It makes a network namespace with an
interface, a default route and a name server's address, so that only the browser's own flags keep it off the
network. A child process writes a line for each packet to the file `SENT` in the folder `TMPDIR`.
"""

import ctypes
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "crawler/render"))
import launch

SENT = "packets-sent"
ROUTES = """
set -e
ip link set lo up
ip link add v0 type veth peer name v1
ip address add 198.51.100.1/24 dev v0
ip link set v1 up
ip link set v0 arp off up
ip route add default via 198.51.100.9
"""
_IP_BEGIN, _PROTOCOL, _TARGET = 14, 23, slice(30, 34)  # places in a frame
_NAMES = {socket.IPPROTO_TCP: "tcp", socket.IPPROTO_UDP: "udp", socket.IPPROTO_IGMP: "igmp"}


def record(packets: socket.socket, file: Path) -> None:
    """Append a line to a file for each IPv4 packet that is sent: the protocol, the address and the port."""
    with file.open("a", buffering=1) as lines:
        while True:
            frame, about = packets.recvfrom(1 << 16)
            if about[1] != 0x0800 or about[2] != socket.PACKET_OUTGOING:
                continue
            ports = _IP_BEGIN + 4 * (frame[_IP_BEGIN] & 15)
            protocol = _NAMES.get(frame[_PROTOCOL], str(frame[_PROTOCOL]))
            port = int.from_bytes(frame[ports + 2 : ports + 4], "big") if protocol in ("tcp", "udp") else 0
            lines.write(f"{protocol} {socket.inet_ntoa(frame[_TARGET])}:{port}\n")


def main(arguments: list[str]) -> None:
    """Make the network, record its packets in a child process, and become the browser."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.unshare(launch._CLONE_NEWNET) == 0
    for name in ("all", "default"):
        # with IPv6, the kernel would send packets of its own
        Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
    subprocess.run(["sh", "-c", ROUTES], check=True)
    packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    file = Path(os.environ["TMPDIR"]) / SENT
    file.touch()
    if os.fork() == 0:
        libc.prctl(launch._PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        record(packets, file)
    packets.close()
    arguments[5] = "0"  # stay in this network
    launch.main(arguments)


if __name__ == "__main__":
    main(sys.argv[1:])
