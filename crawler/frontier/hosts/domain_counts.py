"""Counts the registrable domains at an IP address, over all processes of the crawl.

A *sketch* has one bit for each value of a hash of domains; a domain sets the bit of its hash. The number of
domains follows from the number of bits that are set (linear counting; Whang et al., 1990). 1,024 bits can
count some 7,000 domains. The processes send their sketches to each other. The union of the sketches is the
sketch of all domains, even if several processes have met the same domain. So a sketch that is lost, repeated,
late or left from an earlier start of a process never makes the number of domains too large.
"""

from math import log

SKETCH_BITS = 1024


class DomainCount:
    """The registrable domains at one address.

    While this process knows fewer than `exact_max` domains, it counts them exactly. `elsewhere` is the sketch of
    the domains that other processes know. `number` is the number of domains, an estimate if sketches are used.
    `least` is a lower bound of this number.
    """

    __slots__ = ("_domains", "_own", "elsewhere", "least", "number", "told")

    def __init__(self, elsewhere: int = 0) -> None:
        self._domains: set[int] | None = set()
        self._own = 0
        self.elsewhere = elsewhere
        self.told = 0  # the number of bits of the sketch that the other processes were told last
        self.least = 0
        self.number = 0.0
        self._count()

    def add(self, domain: int, exact_max: int) -> bool:
        """Record a domain that this process knows.

        Return whether the domain is new. If only a sketch is kept, return whether the domain sets a new bit in
        it.
        """
        domains = self._domains
        if domains is None:
            bit = 1 << domain % SKETCH_BITS
            if self._own & bit:
                return False
            self._own |= bit
        elif domain in domains:
            return False
        else:
            domains.add(domain)
            if len(domains) >= exact_max:
                self._own, self._domains = self.sketch(), None
        self._count()
        return True

    def add_elsewhere(self, sketch: int) -> None:
        """Record the sketch of the domains that another process knows."""
        if sketch & ~self.elsewhere:
            self.elsewhere |= sketch
            self._count()

    def sketch(self) -> int:
        """Return the sketch of the domains that this process knows."""
        own = self._own
        for domain in self._domains or ():
            own |= 1 << domain % SKETCH_BITS
        return own

    def _count(self) -> None:
        if self._domains is not None and not self.elsewhere:
            self.least, self.number = len(self._domains), float(len(self._domains))
            return
        self.least = (self.sketch() | self.elsewhere).bit_count()
        self.number = SKETCH_BITS * log(SKETCH_BITS / max(1, SKETCH_BITS - self.least))

    def __repr__(self) -> str:
        return f"DomainCount({self.number:.0f})"
