"""A limit of bytes per second over all connections of a process.

    bytes arrive --spend--> the instant until which nothing may be read advances by bytes / rate

The throttle is a plain object; `now` is monotonic time. `spend` returns how long the receiver must wait, so a
read that exceeds the rate is followed at once by a wait. If little is received, at most `BURST` seconds of
the rate are saved for later.
"""

BURST = 0.1  # seconds; after a pause, the bytes that are allowed in this time may arrive at once
# size of the receive buffer of a limited connection; the kernel must not receive what we do not read
WINDOW_BYTES = 64 << 10


class Throttle:
    """Limits reading to `rate` bytes per second; 0 means no limit."""

    __slots__ = ("_free_at", "rate")

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._free_at = 0.0

    def __bool__(self) -> bool:
        return self.rate > 0.0

    def spend(self, nbytes: int, now: float) -> float:
        """Count received bytes; return the seconds to wait before reading more."""
        if not self.rate:
            return 0.0
        self._free_at = max(self._free_at, now - BURST) + nbytes / self.rate
        return self.wait(now)

    def wait(self, now: float) -> float:
        """Return the seconds to wait before reading more."""
        return max(0.0, self._free_at - now)

    def __repr__(self) -> str:
        return f"Throttle({self.rate:g} bytes/s)"
