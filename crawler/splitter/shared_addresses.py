"""Tells the peers which registrable domains this process has met at an IP address, and collects what the peers tell.

All processes limit the requests to an address by the number of its domains (`frontier/hosts/addresses.py`). The
domains are told as sketches (`frontier/hosts/domain_counts.py`), within `Counters`. Messages are lost only if a
connection ends. So when a peer connects, all sketches are sent to it again.
"""

from collections.abc import Iterable, Mapping

from crawler.splitter.wire import ADDRESSES_PER_MESSAGE_MAX, SKETCH_BYTES_MAX


class SharedAddresses:
    """The sketches that this process sends to its peers, and those that it has received from them.

    Each of the two collections holds the sketches of at most `entries_max` addresses.
    """

    def __init__(self, peers: Iterable[str], entries_max: int) -> None:
        self._entries_max = entries_max
        self._own: dict[str, int] = {}
        self._untold: dict[str, dict[str, None]] = {peer: {} for peer in peers}
        self._heard: dict[str, int] = {}

    def tell(self, sketches: Mapping[str, int]) -> None:
        """Tell all peers of the domains that this process knows at addresses."""
        for name, sketch in sketches.items():
            if name not in self._own and len(self._own) >= self._entries_max:
                continue
            self._own[name] = sketch
            for untold in self._untold.values():
                untold[name] = None

    def connected(self, peer: str) -> None:
        """Tell a peer everything again, because messages of an earlier connection may be lost."""
        self._untold[peer] = dict.fromkeys(self._own)

    def take(self, peer: str) -> dict[str, bytes]:
        """Return the sketches for the next message to a peer."""
        untold = self._untold[peer]
        names = [name for name, _ in zip(untold, range(ADDRESSES_PER_MESSAGE_MAX), strict=False)]
        for name in names:
            del untold[name]
        return {name: self._own[name].to_bytes(SKETCH_BYTES_MAX, "little").rstrip(b"\0") for name in names}

    def hear(self, sketches: Mapping[str, bytes]) -> None:
        """Record what a peer told."""
        for name, sketch in sketches.items():
            if name in self._heard or len(self._heard) < self._entries_max:
                self._heard[name] = self._heard.get(name, 0) | int.from_bytes(sketch, "little")

    def take_heard(self) -> dict[str, int]:
        """Return what the peers have told since the last call."""
        heard, self._heard = self._heard, {}
        return heard

    def __repr__(self) -> str:
        untold = {peer: len(names) for peer, names in self._untold.items()}
        return f"SharedAddresses({len(self._own)} told, left to tell: {untold})"
