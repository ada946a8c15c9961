"""Requests pages from the processes of the crawl that own them, on this machine or on other nodes."""

from collections.abc import Sequence
from pathlib import Path

from crawler.config.forms import named_addresses
from crawler.serve.server import SOCKET, Forwarded, forward_to_node, forward_to_sibling


class SiblingClient:
    """Finds the page servers of the other processes of the crawl.

    `peers` names the servers on other nodes, each as "NAME=HOST:PORT" (`serve.peers`). The processes on this machine
    have their directories in `folder`.
    """

    def __init__(self, peers: Sequence[str], folder: Path) -> None:
        self._folder = folder
        self._addresses = named_addresses(peers)

    def ask(self, owner: str, body: bytes = b"") -> Forwarded | None:
        """Forward a request with `body` to its owner; return None if the owner is neither on this machine nor a peer."""
        if (address := self._addresses.get(owner)) is not None:
            return forward_to_node(owner, address, body)
        if (self._folder / owner / SOCKET).exists():
            return forward_to_sibling(self._folder / owner, body)
        return None
