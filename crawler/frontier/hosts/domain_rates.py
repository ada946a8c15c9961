"""Limits how often a registrable domain is requested; all hosts of the domain share the limit.

Gaps limit each host, so a domain with a thousand hosts could get hundreds of requests per second, although
one operator usually pays for all of them. Therefore each request to a domain needs a turn of the domain. The
turns of a domain are 1 / `domain_rate` seconds apart, but no farther apart than the minimum gap of the host
that is to be requested. So one host alone is never limited by its domain, and if the minimum gap is 0
(`politeness.delay`), domains have no limit. A host keeps its turn until its request starts. Instants are
seconds on the process clock.
"""

from crawler.config import PolitenessConfig
from crawler.frontier.hosts.rate import Rate

# Seconds. If the turn of a host would be further in the future than this, the host gets no turn yet and asks
# again after this time. So only a limited number of turns is held at the same time.
AHEAD_MAX = 30.0


class _Domain(Rate):
    """The starts of requests to a domain, and the instant of its next free turn."""

    next_turn = 0.0


class DomainRates:
    """The domains that had requests lately, and the turns that hosts have taken."""

    def __init__(self, config: PolitenessConfig, entries_max: int, processes: int) -> None:
        """Prepare the limit; `processes` is the number of processes that may request hosts of the same domain."""
        self._processes = processes
        self._entries_max = entries_max
        self._domains: dict[int, _Domain] = {}
        self._turns: dict[int, float] = {}  # host key -> the instant of the host's turn
        self.configure(config)

    def configure(self, config: PolitenessConfig) -> None:
        """Set the rate for future turns."""
        self._delay = config.delay
        self._interval = self._processes / config.domain_rate if config.domain_rate else 0.0

    def turn_at(self, domain: int, host: int, now: float, delay: float | None = None) -> float:
        """Return the instant from which the host's next request may start. Ask again at this instant.

        `delay` is the minimum gap of the host if the user has overridden it.
        """
        interval = min(self._interval, self._delay if delay is None else delay)
        if not interval:
            return now
        known = self._domains.get(domain)
        if known is None:
            self._forget(now)
            known = self._domains[domain] = _Domain(1.0 / interval)
        if host not in self._turns:
            turn = max(now, known.next_turn)
            if turn - now > AHEAD_MAX:
                return now + AHEAD_MAX
            self._turns[host] = turn
            known.next_turn = turn + interval
        known.rate = 1.0 / interval
        return max(self._turns[host], known.ready_at())

    def start(self, domain: int, host: int, now: float) -> None:
        """Count the start of a request. The turn of the host is used up."""
        if self._turns.pop(host, None) is not None:
            self._domains[domain].spend(now)

    def _forget(self, now: float) -> None:
        """Drop the entries that delay nothing, but only if there are too many entries.

        An entry is the turn of a host, or the time from which a domain may be requested. It delays nothing if
        its time is in the past.
        """
        if max(len(self._domains), len(self._turns)) >= self._entries_max:
            self._turns = {host: turn for host, turn in self._turns.items() if turn > now}
            waiting = {
                key: domain
                for key, domain in self._domains.items()
                if max(domain.next_turn, domain.ready_at()) > now
            }
            self._domains = waiting
