"""Conditional requests, and whose validators can be believed (RFC 9110 13.1; servers lie).

A known page is asked with the ETag and Last-Modified of its copy, unchanged. A 304
saves the body; a false one would keep a stale copy for ever. So some requests are
*plain*:

* after `same_answers_max` answers 304 in a row, and where a signal says that
  the page changed though the last answer was 304;
* one request in `check_every` to a host whose conditional requests have never
  shown a change.

If such a check finds other content under the same validators, or a change where
conditional requests have never shown one, the host's validators are not used for
`distrust` seconds. The verdict ends with the process.
"""

import msgspec

from crawler.config import RefreshConfig
from crawler.records import Outcome, PageRecord, PageState

HOSTS_MAX = 100_000  # hosts remembered; beyond, the oldest are met anew


class _Host(msgspec.Struct, gc=False):
    """What a host's answers have shown: `asked` since the last check, whether a condition ever showed a change."""

    asked: int = 0
    shown: bool = False
    plain_until: float = 0.0


class Validators:
    """Decides how known pages are asked; `conditions`, then `answered` for each."""

    def __init__(self, config: RefreshConfig) -> None:
        self._config = config
        self._hosts: dict[int, _Host] = {}
        self._under_way: dict[int, bool] = {}  # by fingerprint: asked with conditions
        self.lies = 0

    def conditions(
        self,
        fingerprint: int,
        host_key: int,
        record: PageRecord | None,
        now: float,
        *,
        signalled: bool = False,
    ) -> tuple[str, str]:
        """(ETag, Last-Modified) to ask with; "" where there is none, or the page is to be asked plainly."""
        pair = ("", "")
        if self._config.conditional and record is not None and record.state is PageState.STORED:
            pair = (record.etag, record.last_modified)
        host = self._host(host_key)
        if any(pair) and self._is_checked(host, record, now, signalled):
            pair = ("", "")
        self._under_way[fingerprint] = any(pair)
        return pair

    def _is_checked(self, host: _Host, record: PageRecord | None, now: float, signalled: bool) -> bool:
        assert record is not None
        if now < host.plain_until or record.not_modified >= self._config.same_answers_max:
            return True
        if signalled and record.not_modified:
            return True
        host.asked += 1
        if not host.shown and host.asked >= self._config.check_every:
            host.asked = 0
            return True
        return False

    def answered(
        self,
        fingerprint: int,
        host_key: int,
        before: PageRecord | None,
        after: PageRecord,
        changed: bool,
        now: float,
    ) -> bool:
        """Learn from the end of a request; whether it has caught the host at a lie."""
        conditional = self._under_way.pop(fingerprint, False)
        if not changed or before is None:
            return False
        host = self._host(host_key)
        if conditional:
            host.shown = True
            return False
        known = (before.etag, before.last_modified)
        if not any(known) or after.outcome is Outcome.UNCHANGED or now < host.plain_until:
            return False
        same = (after.etag, after.last_modified) == known
        if same or (before.not_modified and not host.shown):
            host.plain_until, host.shown, host.asked = now + self._config.distrust, False, 0
            self.lies += 1
            return True
        return False

    def _host(self, key: int) -> _Host:
        host = self._hosts.pop(key, None) or _Host()
        if len(self._hosts) >= HOSTS_MAX:
            del self._hosts[next(iter(self._hosts))]
        self._hosts[key] = host
        return host

    def __repr__(self) -> str:
        return f"Validators({len(self._hosts)} hosts, {self.lies} lies)"
