"""Why hosts wait, in words, for the log of -v: each back-off once, with its cause and the next try."""

from collections.abc import Iterable, Iterator

from crawler.clock import iso_time
from crawler.records import HostStatus

HOSTS_MAX = 200  # hosts looked at; those of the front come first
_REMEMBERED_MAX = 4096


class Waits:
    """What has been said of which host."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[object, ...]] = {}

    def news(self, hosts: Iterable[HostStatus]) -> Iterator[str]:
        """A line for each host that waits for another reason, or longer, than was said last."""
        for host in hosts:
            if not (host.failures or host.refusals or host.slowdown > 1.0 or host.cause):
                self._said.pop(host.host, None)
                continue
            state = (host.failures, host.refusals, round(host.slowdown, 1), host.cause)
            if self._said.get(host.host) == state:
                continue
            if len(self._said) >= _REMEMBERED_MAX:
                self._said.clear()
            self._said[host.host] = state
            yield _line(host)


def _line(host: HostStatus) -> str:
    reasons = [host.cause.replace("_", " ")] if host.cause else []
    reasons += [f"{host.failures} failures in a row"] if host.failures else []
    reasons += [f"refused {host.refusals} times in a row"] if host.refusals else []
    reasons += [f"slowed {host.slowdown:.1f} times by 429 or 503"] if host.slowdown > 1.0 else []
    again = f"; next try {iso_time(host.ready_at)}" if host.wait > 0.0 else ""
    return f"{host.host}: {host.state.replace('_', ' ')} ({', '.join(reasons)}){again}"
