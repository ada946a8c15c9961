"""A name server on loopback. It answers queries for A and AAAA from a table, or leaves them unanswered."""

import asyncio
import socket
import struct

A, CNAME, AAAA = 1, 5, 28
NXDOMAIN, SERVFAIL = 3, 2


class NameServer(asyncio.DatagramProtocol):
    """Answers from `records`. It maps a name to a list of (type, ttl, data), to an rcode, or to None (no answer)."""

    def __init__(self, records: dict[str, list[tuple[int, int, str]] | int | None]) -> None:
        self.records = records
        self.asked: list[tuple[str, int]] = []
        self.silent: set[tuple[str, int]] = set()  # names and types of questions that were not answered
        self._unanswered: list[tuple[bytes, tuple[str, int]]] = []

    async def __aenter__(self) -> "NameServer":
        """Serve on a free port, and set `address` to "127.0.0.1:port"."""
        loop = asyncio.get_running_loop()
        self.transport, _ = await loop.create_datagram_endpoint(lambda: self, local_addr=("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.transport.get_extra_info('sockname')[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.transport.close()

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        name, kind, question = _question(data)
        self.asked.append((name, kind))
        answer = self.records.get(name, NXDOMAIN)
        if answer is None or (name, kind) in self.silent:
            self._unanswered.append((data, address))
            return
        rcode = answer if isinstance(answer, int) else 0
        records = [] if isinstance(answer, int) else [r for r in answer if r[0] in (kind, CNAME)]
        head = data[:2] + struct.pack(">HHHHH", 0x8180 | rcode, 1, len(records), 0, 0)
        body = b"".join(_record(*record) for record in records)
        self.transport.sendto(head + question + body, address)

    def ask_again(self, name: str) -> None:
        """Treat the unanswered questions for a name as if they had just arrived."""
        for data, address in self._unanswered:
            if _question(data)[0] == name:
                self.datagram_received(data, address)


def _question(data: bytes) -> tuple[str, int, bytes]:
    labels, position = [], 12
    while data[position]:
        labels.append(data[position + 1 : position + 1 + data[position]].decode().lower())
        position += 1 + data[position]
    kind = struct.unpack_from(">H", data, position + 1)[0]
    return ".".join(labels), kind, data[12 : position + 5]


def _record(kind: int, ttl: int, value: str) -> bytes:
    if kind == CNAME:
        rdata = b"".join(bytes([len(label)]) + label.encode() for label in value.split(".")) + b"\0"
    else:
        rdata = socket.inet_pton(socket.AF_INET if kind == A else socket.AF_INET6, value)
    return b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, ttl, len(rdata)) + rdata
