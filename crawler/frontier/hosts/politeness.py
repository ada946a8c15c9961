"""Politeness: the time between two requests to a host.

Host     One request in flight over all its schemes and ports. After it ends, the
         host waits a gap of `delay_factor` times the answer's time, at least
         `delay` and at most `delay_max` (Broder, Najork, Wiener 2003, section 4.1);
         Crawl-delay and Retry-After can only lengthen it. Each 429 or 503
         doubles the gap; each good answer shrinks it by a few per cent.
Failure  Missing answers, 429 and 503 are charged to the host: it waits
         `backoff_first`, doubling to `backoff_max`, and is given up after
         `give_up_after` without any answer. After `refusals_max` refusals (401,
         403, 406, 451) in a row, it is held as if the user had blocked it.

`addresses.py` limits the requests to each address, and `rate.py` limits the requests of the whole crawl.
Durations are in seconds; instants are seconds on the process clock.
"""

from typing import NamedTuple

from crawler.config import Override, PolitenessConfig
from crawler.frontier.hosts.gap_journal import GapJournal
from crawler.frontier.hosts.table import NOWHERE, HostFlag, HostTable
from crawler.records import TLS_FAILURES, Blame, Fetch, Outcome

TLS_WAIT = 86_400.0  # s
REFUSALS = frozenset({401, 403, 406, 451})
# The reasons why a host is given up or held, and the kinds of its last failure. The store holds indexes into this
# tuple, so new causes are only appended.
CAUSES = (
    "", "no_answer", "dns_not_found", "address_denied", "refusals",
    "connect_error", "tls_error", "dns_error", "host_busy", "temporary", "header_timeout", "reset", "truncated",
    "framing", "proxy_error", "internal_error", "not_rendered",
    "certificate_expired", "certificate_mismatch", "certificate_untrusted",
)  # fmt: skip
_CAUSE_OF = {cause: index for index, cause in enumerate(CAUSES)}
NO_OVERRIDE = Override()


class GapRule(NamedTuple):
    """The values of one URL that decide the gap after a request for it, besides the configuration.

    `crawl_delay` is the Crawl-delay of robots.txt in seconds, or 0 if there is none.
    """

    crawl_delay: float = 0.0
    override: Override = NO_OVERRIDE


NO_RULE = GapRule()


def _busy_time(fetch: Fetch) -> float:
    """Return the seconds for which a fetch kept its host busy, including the requests of a browser for the page."""
    return fetch.took if fetch.rendering is None else fetch.took + fetch.rendering.host_took


class HostPoliteness:
    """The politeness rules for hosts, applied to rows of the host table. The journal notes the end of each gap."""

    def __init__(self, config: PolitenessConfig, hosts: HostTable, journal: GapJournal | None = None) -> None:
        self.config = config
        self._hosts = hosts
        self._journal = GapJournal(bytearray()) if journal is None else journal

    def finish(
        self, slot: int, fetch: Fetch, now: float, rule: GapRule = NO_RULE, *, charged: bool = True
    ) -> float:
        """Record the end of a request to a host. Return the time from which the host may be requested again.

        If the answer came from a cache, no request was made, so the host need not wait.

        If `charged` is False, a failure concerns only one authority of the host. Then the host as a whole
        waits only for the usual gap. A longer wait that a request outside the queue has caused (`hop`) still applies.
        """
        if fetch.is_cached:
            return self._rest(slot, max(self._hosts.ready[slot], now), self._hosts.gap[slot])
        failed = self._charge(slot, fetch, now) if charged else 0.0
        wait = max(failed, self._gap(slot, _busy_time(fetch), rule), self._retry_after(fetch))
        return self._wait(slot, wait, now)

    def _charge(self, slot: int, fetch: Fetch, now: float) -> float:
        """Count an answer or a failure for the host. Return the wait after a failure; 0.0 after an answer."""
        if fetch.blame is not Blame.NONE:
            self._hosts.cause[slot] = _CAUSE_OF.get(fetch.outcome, 0)
        if fetch.blame is Blame.HOST:
            return self._failed(slot, fetch, now)
        if fetch.status:
            self._answered(slot, fetch)
        return 0.0

    def finish_elsewhere(self, slot: int, now: float, rule: GapRule) -> float:
        """Record the end of a task whose last answer came from another host, to which this host had redirected it.

        Return the time from which this host may be requested again. Part of the gap has already passed,
        because it began when the redirect was received (`pause`). So the host waits only for the minimum gap,
        or until the gap of the redirect ends if that is later.
        """
        self._recover(slot)
        return self._wait(slot, self._gap(slot, 0.0, rule), now)

    def _wait(self, slot: int, wait: float, now: float) -> float:
        """Let the host wait for `wait` seconds, or until the end of its present wait if that is later."""
        ready = max(self._hosts.ready[slot], now + wait)
        return self._rest(slot, ready, ready - now)

    def _rest(self, slot: int, ready: float, gap: float) -> float:
        """Let the host rest until `ready`, at the end of a gap of `gap` seconds. Return `ready`."""
        hosts = self._hosts
        hosts.gap[slot], hosts.ready[slot] = gap, ready
        self._journal.end(hosts.key[slot], ready, gap)
        return ready

    def interrupt(self, slot: int, gap: float, now: float) -> None:
        """Record that a request was interrupted at `now`.

        The host waits for `gap`, or until the end of its present wait if that is later.
        """
        self._rest(slot, max(self._hosts.ready[slot], now + gap), gap)

    def usual_gap(self, slot: int) -> float:
        """Return the gap in seconds that followed the host's last answer, or the minimum gap if it is longer."""
        return max(self.config.delay, self._hosts.gap[slot])

    def hop(self, slot: int, fetch: Fetch, now: float, rule: GapRule = NO_RULE) -> None:
        """Record the end of a request that is not for a URL of the host's queue.

        A 429, a 503 and a good answer count as after any other request. A missing answer and a refusal are not
        charged to the host: the host may work for its own pages.
        """
        self.count_answer(slot, fetch, now)
        self.pause(slot, fetch, now, rule)

    def pause(self, slot: int, fetch: Fetch, now: float, rule: GapRule = NO_RULE) -> None:
        """Let the host wait for its gap after a request, without counting the answer. This can only lengthen its wait."""
        if not fetch.is_cached:
            self._wait(slot, self.wait_after(slot, fetch, rule), now)

    def wait_after(self, slot: int, fetch: Fetch, rule: GapRule = NO_RULE) -> float:
        """Return the number of seconds for which the host waits after a request that is not for its queue."""
        return max(self._gap(slot, fetch.took, rule), self._retry_after(fetch))

    def count_answer(self, slot: int, fetch: Fetch, now: float) -> None:
        """Count an answer to a request outside the queue. After a 429 or 503, the host backs off."""
        if fetch.is_cached:
            return
        if fetch.outcome is Outcome.HOST_BUSY:
            self._hosts.cause[slot] = _CAUSE_OF[fetch.outcome]
            self._wait(slot, max(self._failed(slot, fetch, now), self._retry_after(fetch)), now)
        elif fetch.status:
            self._recover(slot)

    def give_up(self, slot: int, cause: str) -> None:
        """Send no more requests to the host in this run."""
        self._hosts.flags[slot] |= HostFlag.GIVEN_UP
        self._hosts.cause[slot] = CAUSES.index(cause)

    def longest_gap(self, slot: int, took: float, override: Override) -> float:
        """Return the gap after a request that may have taken up to `took` seconds.

        `slot` is NOWHERE if the host has no slot yet.
        """
        known = slot != NOWHERE
        return self._gap(slot, took, GapRule(0.0, override)) if known else gap(took, self.config, override)

    def gap_terms(self, slot: int, rule: GapRule) -> tuple[float, float]:
        """Return (minimum, factor) for the gap after the host's next answer.

        The gap is the answer time in seconds times the factor, but at least the minimum. The upper limit of the
        gap is not taken into account here.
        """
        return self._gap(slot, 0.0, rule), _factor(self.config, rule.override) * max(
            1.0, self._hosts.slowdown[slot]
        )

    def _gap(self, slot: int, took: float, rule: GapRule) -> float:
        length = gap(took, self.config, rule.override)
        slowdown = self._hosts.slowdown[slot]
        if slowdown > 1.0:
            length = max(length * slowdown, self.config.slowdown_gap * (slowdown - 1.0))
        return max(length, min(rule.crawl_delay, self.config.crawl_delay_max))

    def _retry_after(self, fetch: Fetch) -> float:
        return min(fetch.retry_after, self.config.retry_after_max)

    def _failed(self, slot: int, fetch: Fetch, now: float) -> float:
        hosts, config = self._hosts, self.config
        hosts.failures[slot] = min(hosts.failures[slot] + 1, 255)
        if fetch.outcome is Outcome.HOST_BUSY:
            hosts.slowdown[slot] = min(max(hosts.slowdown[slot], 1.0) * 2.0, config.slowdown_max)
        if fetch.status:
            hosts.silent_since[slot] = 0.0
        else:
            self.note_silence(slot, now)
        return backoff(hosts.failures[slot], config, fetch.outcome)

    def note_silence(self, slot: int, now: float) -> None:
        """Record a request without an answer. After `give_up_after` seconds without any answer, give up the host."""
        hosts = self._hosts
        if not hosts.silent_since[slot]:
            hosts.silent_since[slot] = now
        elif now - hosts.silent_since[slot] >= self.config.give_up_after:
            self.give_up(slot, "no_answer")

    def _recover(self, slot: int) -> None:
        """Record that the host has answered: forget its failures, and shrink its slowdown."""
        hosts = self._hosts
        hosts.failures[slot] = 0
        hosts.silent_since[slot] = 0.0
        if hosts.slowdown[slot] > 1.0:
            hosts.slowdown[slot] = max(1.0, hosts.slowdown[slot] * self.config.slowdown_recovery)

    def _answered(self, slot: int, fetch: Fetch) -> None:
        hosts, config = self._hosts, self.config
        self._recover(slot)
        if fetch.status not in REFUSALS:
            hosts.refusals[slot] = 0
            return
        hosts.refusals[slot] = min(hosts.refusals[slot] + 1, 255)
        if hosts.refusals[slot] >= config.refusals_max:
            hosts.flags[slot] |= HostFlag.REFUSED
            hosts.cause[slot] = CAUSES.index("refusals")


def gap(took: float, config: PolitenessConfig, override: Override) -> float:
    """Return the plain gap after an answer that took `took` seconds (`frontier/README.md`, "Politeness")."""
    delay = config.delay if override.delay is None else override.delay
    return max(delay, min(_factor(config, override) * took, config.delay_max))


def _factor(config: PolitenessConfig, override: Override) -> float:
    return config.delay_factor if override.delay_factor is None else override.delay_factor


def backoff(failures: int, config: PolitenessConfig, outcome: Outcome) -> float:
    """Return the wait after `failures` failures in a row; `failures` is at least 1. The last failure was `outcome`.

    After two certificate failures, the host is tried only once a day, both for pages and for robots.txt.
    """
    if outcome in TLS_FAILURES and failures > 1:
        return TLS_WAIT
    return min(config.backoff_first * 2.0 ** min(failures - 1, 60), config.backoff_max)
