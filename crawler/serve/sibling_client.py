"""Asks the other processes of a crawl for the pages that they own: siblings here, nodes elsewhere."""

from collections.abc import Sequence
from pathlib import Path

from crawler.errors import ConfigError
from crawler.serve import host_check
from crawler.serve.server import SOCKET, Forwarded, forward_to_node, forward_to_sibling


class SiblingClient:
    """`peers` are the page servers of nodes, "NAME=HOST:PORT"; `folder` holds the folders of this machine's processes.

    Raises:
        ConfigError: one of the peers is not so written.
    """

    def __init__(self, peers: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._addresses = {}
        for peer in peers:
            name, _, address = peer.partition("=")
            if not name or ":" not in address:
                raise ConfigError(
                    f"serve.peers: {peer!r} is no NAME=HOST:PORT such as p1=crawl1.internal:8080"
                )
            self._addresses[name] = host_check.parse_address(address, "serve.peers")

    def ask(self, owner: str, body: bytes = b"") -> Forwarded | None:
        """The owner's answer to a request with `body`, on its way; None if it is neither here nor among the peers."""
        if (address := self._addresses.get(owner)) is not None:
            return forward_to_node(owner, address, body)
        if (self._folder / owner / SOCKET).exists():
            return forward_to_sibling(self._folder / owner, body)
        return None
