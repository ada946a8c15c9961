"""Builds the answer to a request for a page. The reply to a parsed request is built without waiting.

    ParsedRequest --> place of its copies --> which copy --> may it be shown, is it fresh enough
          --> representation (cached, or built) --> 304, 206, 412, 416 or the whole

Only `PageHandler._chosen` chooses a copy, and refuses to show a withheld copy. If the process that owns the URL has
no copy, another process may have stored one as a file of a page (`pages/holdings.py`).

The I/O shell writes the `Reply`. Every fetch of a URL changes the URL's record in the batch that stores the
capture. So a cached answer is current as long as the stored record is unchanged. After each write to the
store, the record of a cached answer is read once to check that it is unchanged.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from msgspec.structs import replace

from crawler.config import ServeConfig
from crawler.consent.describing import stored_header_text
from crawler.consent.use_rule import UseRule
from crawler.errors import CrawlerError
from crawler.pages.archive import Archive
from crawler.pages.captures import record_key, static_form, unpack_record
from crawler.records import Capture, Outcome, PageRecord, PageState
from crawler.serve import copy_selection, header_fields, memento
from crawler.serve.client_headers import ClientHeaders
from crawler.serve.conditions import conditional
from crawler.serve.dates import dates_of
from crawler.serve.disk_cache import BODY_BYTES_MIN, open_disk_cache
from crawler.serve.freshness_demand import FreshnessDemand
from crawler.serve.held_files import HeldFiles
from crawler.serve.http_error import HttpError
from crawler.serve.interfaces import Ahead, AheadState, Located, ServedCrawl
from crawler.serve.reply import Reply
from crawler.serve.representation import CopyForm, Rewriter, represent, represent_view
from crawler.serve.request_parsing import ParsedRequest, Route, accept_datetime
from crawler.serve.response_cache import CachedResponse, ResponseCache
from crawler.serve.stored_copies import CopyReader


class OwnedByOther(Exception):
    """Another process of the crawl, `owner`, must answer. The request, with its `body`, is forwarded to `owner`."""

    def __init__(self, owner: str, body: bytes = b"") -> None:
        self.owner = owner
        self.body = body


class MissingCopyError(HttpError):
    """The process that owns `url` has no copy of it. Another process may have one.

    `refresh` is the value of X-Refresh if the client requested that the page is fetched, otherwise "".
    """

    url = ""
    refresh = ""


class PageHandler:
    """Answers requests for pages of one crawl. `rewriter` points links to /page, and may be None.

    `folder` is the place of the cache on disk, unless the configuration names another. If it is None, there
    is no such cache.

    Raises:
        ConfigError: the folder that the configuration names for the cache on disk cannot be used.
    """

    def __init__(
        self,
        crawl: ServedCrawl,
        config: ServeConfig,
        rewriter: Rewriter | None = None,
        use_rule: UseRule | None = None,
        folder: Path | None = None,
    ) -> None:
        self._crawl = crawl
        self._config = config
        self._rewriter = rewriter
        self._use_rule = use_rule
        self.held_files = HeldFiles(crawl, use_rule)
        self._withholds = config.withholds_disallowed
        self._consent_lines: dict[bytes, bytes] = {}  # digest of a consent receipt -> its header line
        self.response_cache = ResponseCache(config.ready_bytes_max)
        self.head_cache = ResponseCache(config.head_bytes_max)
        self.disk_cache = open_disk_cache(config, folder)
        self.copies = CopyReader(config.segments_open_max, self.disk_cache)
        # the form (`CopyForm`) in which a client recently requested a whole page
        self.latest_form: CopyForm | None = None

    def again(
        self, target: bytes, client_headers: ClientHeaders, conditions: Mapping[str, str], now: float
    ) -> Reply | None:
        """Return the reply to a request that `at_once` has answered before, or None if no current reply is cached.

        `target` is the request target as received. `conditions` has the same meaning as in `at_once`, and the
        same exceptions are raised.
        """
        if self._withholds:  # robots.txt must be checked at each request
            return None
        request = target, client_headers.range_form if "Range" in conditions else client_headers.form
        for cache in (self.response_cache, self.head_cache):
            shown = cache.find_by_request(request)
            if shown is not None and _is_current(shown):
                cache.use(shown)
                return self._made_at_once(shown, client_headers, conditions, now)
        return None

    def at_once(
        self,
        target: bytes,
        asked: ParsedRequest,
        client_headers: ClientHeaders,
        conditions: Mapping[str, str],
        now: float,
    ) -> Reply | None:
        """Return the reply to a request for a copy whose body fits in memory; None if `reply` must build the reply.

        `asked` is the result of parsing `target`. `conditions` holds the conditions and the range of the
        request; `client_headers` contains neither.

        Raises:
            HttpError, DamageError: as in `reply`. The caller must then call `reply`, which reports the error and
                counts the request.
        """
        if asked.door is not Route.PAGE or asked.refresh or asked.max_stale is not None:
            return None
        located = self._crawl.locate(asked.url)
        if located.archive is None:
            return None
        plain_form = client_headers.range_form if "Range" in conditions else client_headers.form
        form = self.latest_form = plain_form
        if asked.at is not None or asked.rewrite or asked.static:
            form = replace(form, at=asked.at, rewrite=asked.rewrite, static=asked.static)
        shown = self._shown(located, asked, form)
        self.check_allowed(asked.url)
        reply = self._made_at_once(shown, client_headers, conditions, now)
        if shown.counted:
            cache = self.head_cache if shown.bodiless else self.response_cache
            cache.remember_request((target, plain_form), shown)
        return reply

    def _made_at_once(
        self, shown: CachedResponse, client_headers: ClientHeaders, conditions: Mapping[str, str], now: float
    ) -> Reply | None:
        """Return the reply with a copy, and count the request; None if the copy's body does not fit in memory."""
        _, _, extra = self._of_now(shown, now)
        reply = self._conditional(shown, conditions, extra)
        if reply.body is None:
            return None
        self._count(shown.located, client_headers)
        return reply

    def reply(self, asked: ParsedRequest, client_headers: ClientHeaders, now: float) -> Reply:
        """Return the reply to a GET request; the reply to a HEAD request is the head of this reply.

        Raises:
            HttpError: there is nothing to show; carries the status and the reason.
            OwnedByOther: another process has the page.
            DamageError: the stored bytes cannot be read.
        """
        located = self._crawl.locate(asked.url)
        if located.archive is None:
            raise OwnedByOther(located.owner)
        if asked.door not in (Route.TIMEMAP, Route.VIEW):
            self._count(located, client_headers)
        try:
            return self._reply_from(located, asked, client_headers, now)
        except MissingCopyError as missing:
            held, _ = self.held_files.find(asked.url)
            if held is None:
                raise
            self.check_allowed(asked.url)
            return self._reply_from(held, asked, client_headers, now, missing.refresh)

    def holder_reply(
        self, asked: ParsedRequest, client_headers: ClientHeaders, now: float, refresh: str
    ) -> Reply:
        """Return the reply to a request that the owner of the page has forwarded, because this process has a copy.

        `refresh` is the value of X-Refresh, "" if there is none. The exceptions are those of `reply`.
        """
        held, _ = self.held_files.find(asked.url)
        if held is None:
            raise HttpError(404, "unknown", "this process has no copy", url=asked.url)
        return self._reply_from(held, asked, client_headers, now, refresh)

    def _reply_from(
        self,
        located: Located,
        asked: ParsedRequest,
        client_headers: ClientHeaders,
        now: float,
        refresh: str = "",
    ) -> Reply:
        """Return the reply with the copies of one process. The arguments and exceptions are those of `holder_reply`."""
        assert located.archive is not None
        if asked.door is Route.TIMEMAP:
            return self._timemap(located, asked.url, client_headers.base)
        if asked.door is Route.VIEW:
            return self._view(located, asked, client_headers)
        if asked.door is Route.TIMEGATE:
            return self._timegate(located, asked, client_headers)
        proxied = asked.door is Route.PROXY
        at = _accepted_instant(client_headers) if proxied else asked.at
        form = replace(
            client_headers.form, at=at, rewrite=asked.rewrite, static=asked.static, proxied=proxied
        )
        try:
            shown = self._shown(located, asked, form)
        except HttpError as refusal:
            if (
                refusal.status == 404
                and client_headers.demand is not None
                and client_headers.demand.only_cached
            ):
                refusal.status = 504
            raise
        self.check_allowed(asked.url)
        demand = client_headers.demand if at is None else None
        return self._copy(asked, client_headers.headers, demand, now, shown, located, refresh)

    def _shown(self, located: Located, asked: ParsedRequest, form: CopyForm) -> CachedResponse:
        """Return the copy and its representation, cached or newly built.

        If the representation is new, `_conditional` caches it later.

        Raises:
            HttpError: there is no copy, or it may not be shown.
        """
        for cache in (self.response_cache, self.head_cache):
            shown = cache.find((located.fingerprint, form))
            if shown is not None and _is_current(shown):
                cache.use(shown)
                return shown
        self.response_cache.misses += 1
        return self._built(located, asked, form)

    def has_room(self) -> bool:
        """Return whether a cache can take more prepared answers without dropping others."""
        disk = self.disk_cache
        return self.head_cache.has_room(_HEAD_BYTES) or (disk is not None and disk.has_room(BODY_BYTES_MIN))

    def prepare(self, url: str, form: CopyForm) -> None:
        """Build the answer to a page's first request. If there is room, keep its body on disk and its head in memory.

        The head is kept only if the body can be read again from the archive, and is not too long for memory.
        """
        located = self._crawl.locate(url)
        key = located.fingerprint, form
        if located.archive is None:
            return
        found = self.response_cache.find(key) or self.head_cache.find(key)
        if found is not None and _is_current(found):
            return
        try:
            shown = self._built(located, ParsedRequest(Route.PAGE, url=url), form)
            self.check_allowed(url)
            shown.ready.prepare()
        except (HttpError, CrawlerError):  # a client that asks for the page gets the error
            return
        if shown.cacheable and shown.ready.stored is not None and not shown.ready.too_long:
            _release(shown)
            self.head_cache.prepare(shown)

    def _conditional(self, shown: CachedResponse, headers: Mapping[str, str], extra: bytes) -> Reply:
        """Return the reply to a request with the fields `headers`, and cache the answer."""
        try:
            return conditional(shown.ready, headers, extra, shown.fetched_at)
        finally:
            self._keep(shown)

    def _keep(self, shown: CachedResponse) -> None:
        """Cache an answer if the cache admits it. If not, cache only its head, provided the body can be read again."""
        ready = shown.ready
        if not shown.cacheable or (shown.counted and not shown.bodiless):
            return
        if ready.body is not None and self.response_cache.admits(shown):
            self.response_cache.store(shown.copy() if shown.bodiless else shown)
        elif ready.stored is not None and not shown.bodiless:
            _release(shown)
            self.head_cache.put(shown)
        if shown.bodiless:
            ready.body = None

    def check_allowed(self, url: str) -> None:
        """Raise HttpError (451) if copies are withheld because robots.txt forbids the URL now."""
        if self._withholds and (line := self._crawl.disallowed(url)):
            raise HttpError(451, "disallowed", f"robots.txt of its host forbids the page now: {line}")

    def _count(self, located: Located, client_headers: ClientHeaders) -> None:
        if self._config.count_bots or not client_headers.is_bot:
            self._crawl.note_request(located.fingerprint)

    def _chosen(
        self, located: Located, asked: ParsedRequest, at: float | None, base: str
    ) -> tuple[bytes, PageRecord | None, Capture]:
        """Return the URL's record, as it is stored (b"" if there is none) and decoded, and the copy for the time `at`.

        Raises:
            HttpError: there is no copy, or no copy of this page may be shown (451).
        """
        archive, fingerprint = located.archive, located.fingerprint
        assert archive is not None
        proof = archive.store.get(record_key(fingerprint)) or b""
        record = unpack_record(record_key(fingerprint), proof) if proof else None
        if at is None:
            capture = archive.newest_capture(fingerprint, record)
        else:
            capture = copy_selection.nearest_copy(archive.captures(fingerprint), at)
        copy_selection.check_shown(record, capture, archive.withdrawn(fingerprint, asked.url, capture))
        if capture is None:
            raise self._missing(asked, located, base)
        if why := copy_selection.refusal(self._use_rule, archive, fingerprint, capture, record):
            raise HttpError(451, "consent", why)
        return proof, record, capture

    def _built(self, located: Located, asked: ParsedRequest, form: CopyForm) -> CachedResponse:
        """Choose a copy and build its representation.

        Raises:
            HttpError: there is no copy, or it may not be shown.
        """
        archive = located.archive
        assert archive is not None
        writes, revision, releases = archive.store.writes, archive.withdrawals.revision, archive.releases
        proof, record, capture = self._chosen(located, asked, form.at, form.base)
        if form.static:
            capture = static_form(capture)
        copy = self.copies.open(archive, capture)
        ready = represent(copy, capture, form, held_max=self._config.held_bytes_max, rewriter=self._rewriter)
        path = memento.page_path(asked.url, capture.fetched_at, rewrite=form.rewrite)
        ready.head += f"Content-Location: {path}\r\n".encode()
        if form.at is None and record is not None:
            ready.head += b"X-Changed-At: %b\r\n" % dates_of(int(record.changed_at)).rfc3339
            if record.shown is not None and record.shown.pictured:
                ready.head += memento.view_line(form.base, asked.url)
        ready.head += self._consent_line(archive, located.fingerprint, capture.receipt)
        if record is not None and record.outcome is Outcome.ROBOTS_DENIED:
            ready.head += _DISALLOWED_NOTE
        tried_at = None
        if form.at is None and record is not None and record.state is PageState.STORED:
            tried_at = record.fetched_at
        key, fetched_at = (located.fingerprint, form), capture.fetched_at
        # only a page's own copies change its record; a later copy was stored as a file of another page
        cacheable = record is not None and fetched_at <= record.fetched_at
        return CachedResponse(
            key, located, revision, proof, tried_at, fetched_at, ready, writes, releases, cacheable=cacheable
        )

    def _consent_line(self, archive: Archive, fingerprint: int, digest: bytes) -> bytes:
        """Return the header line that states the consent in a receipt, or b"" if there is none.

        Most pages of a site have the same receipt.
        """
        line = self._consent_lines.get(digest)
        if line is None:
            text = stored_header_text(archive.store, fingerprint, digest)
            line = f"X-Consent: {text}\r\n".encode() if text else b""
            if len(self._consent_lines) >= _CONSENT_LINES_MAX:
                self._consent_lines.clear()
            if line:
                self._consent_lines[digest] = line
        return line

    def _view(self, located: Located, asked: ParsedRequest, client_headers: ClientHeaders) -> Reply:
        """Return the picture that a browser took of a copy. If the copy is withheld, so is the picture."""
        _, _, capture = self._chosen(located, asked, asked.at, client_headers.base)
        self.check_allowed(asked.url)
        assert located.archive is not None
        picture = located.archive.view(capture)
        if not picture:
            why = "no browser took a picture of this copy (render.screenshot)"
            raise HttpError(404, "no_picture", why, url=asked.url)
        ready = represent_view(picture, capture)
        return conditional(ready, client_headers.headers, b"", capture.fetched_at)

    def _timegate(self, located: Located, asked: ParsedRequest, client_headers: ClientHeaders) -> Reply:
        """Redirect to the copy nearest to Accept-Datetime (RFC 7089, 4.2.1)."""
        base, instant = client_headers.base, _accepted_instant(client_headers)
        _, _, capture = self._chosen(located, asked, instant, base)
        self.check_allowed(asked.url)
        fields = memento.redirect_fields(base, asked.url, capture.fetched_at)
        return Reply(302, header_fields.head(302, "Found", fields), 0, b"")

    def _missing(self, asked: ParsedRequest, located: Located, base: str) -> MissingCopyError:
        """Queue a page that has no copy if the client requests this. Return the error."""
        ahead = self._crawl.request_fetch(asked.url, located.fingerprint) if asked.refresh else None
        if ahead is not None and ahead.state in _AHEAD:
            status, wait = _AHEAD[ahead.state], str(math.ceil(ahead.wait))
            retry = (("Retry-After", wait),) if ahead.wait > 0.0 else ()
            missing = MissingCopyError(status, ahead.state, ahead.why, fields=retry, queued=ahead.queued)
        else:
            state, why = self._crawl.missing(asked.url, located.fingerprint)
            fields: tuple[tuple[str, str], ...] = ()
            if asked.door in (Route.TIMEGATE, Route.PROXY):
                fields = ("Vary", "Accept-Datetime"), ("Link", memento.link_field(base, asked.url))
            missing = MissingCopyError(404, state, why, fields=fields, url=asked.url)
            if ahead is not None:
                missing.body["refresh"] = ahead.state
        missing.url, missing.refresh = asked.url, "" if ahead is None else _refresh_text(ahead)
        return missing

    def _copy(
        self,
        asked: ParsedRequest,
        headers: Mapping[str, str],
        demand: FreshnessDemand | None,
        now: float,
        shown: CachedResponse,
        located: Located,
        refresh: str,
    ) -> Reply:
        """Return the reply with a copy: add the fields that change with time, then apply the conditions.

        A demand for a young copy does not apply to a request for the copy of a certain time, so it is then None.
        `refresh` is the value of X-Refresh if the owner of the page has already queued it, otherwise "".
        """
        age, probability, extra = self._of_now(shown, now)
        if demand is not None and age > demand.age_max:
            self._refuse_stale(asked, located, age, probability, queues=not demand.only_cached)
        if not refresh and (asked.refresh or (demand is not None and demand.revalidate)):
            refresh = _refresh_text(self._crawl.request_fetch(asked.url, located.fingerprint))
        if refresh:
            extra += b"X-Refresh: %b\r\n" % refresh.encode()
        max_stale, enough = asked.max_stale, self._config.fresh_enough
        if max_stale is not None and not copy_selection.is_fresh(max_stale, age, probability, enough):
            self._refuse_stale(asked, located, age, probability)
        return self._conditional(shown, headers, extra)

    def _of_now(self, shown: CachedResponse, now: float) -> tuple[float, float | None, bytes]:
        """Return the values that change with time: the age, P(fresh), and the header lines with these values."""
        age = max(0.0, now - shown.fetched_at)
        probability = None
        if shown.tried_at is not None:
            probability = self._crawl.fresh_probability(shown.located.fingerprint, shown.tried_at, now)
        if probability is None:
            return age, None, b"Age: %d\r\n" % age
        return age, probability, b"Age: %d\r\nX-Fresh-Probability: %.3f\r\n" % (age, probability)

    def _refuse_stale(
        self,
        asked: ParsedRequest,
        located: Located,
        age: float,
        probability: float | None,
        *,
        queues: bool = True,
    ) -> NoReturn:
        """Raise HttpError (504), because the copy is too stale for the client. If `queues`, queue the page."""
        queued = queues and self._crawl.request_fetch(asked.url, located.fingerprint).queued
        more: dict[str, Any] = {} if probability is None else {"fresh_probability": round(probability, 3)}
        why = f"the copy is {age:.0f} s old"
        raise HttpError(504, "stale", why, age=round(age), **more, queued=queued)

    def _timemap(self, located: Located, url: str, base: str) -> Reply:
        """Return the list of copies; 404 if there are none."""
        archive, fingerprint = located.archive, located.fingerprint
        assert archive is not None
        captures, refusal = [], ""
        record = Archive.record(archive, fingerprint)
        for capture in archive.captures(fingerprint):
            if why := copy_selection.refusal(self._use_rule, archive, fingerprint, capture, record):
                refusal = refusal or why
                continue
            captures.append(capture)
            if len(captures) >= copy_selection.CAPTURES_MAX:
                break
        newest = captures[0] if captures else None
        copy_selection.check_shown(record, newest, archive.withdrawn(fingerprint, url))
        if not captures and refusal:
            raise HttpError(451, "consent", refusal)
        if not captures:
            state, why = self._crawl.missing(url, fingerprint)
            missing = MissingCopyError(404, state, why, url=url)
            missing.url = url
            raise missing
        self.check_allowed(url)
        body = b"".join(memento.timemap(base, url, reversed(captures)))
        links = memento.link_field(base, url).encode("latin-1", "replace")
        kind = (b"Content-Type", b"application/link-format")
        head = header_fields.head(200, "OK", [kind, (b"Link", links), *header_fields.SANDBOX[1:]])
        return Reply(200, head, len(body), body)


def _refresh_text(ahead: Ahead) -> str:
    """Return the value of X-Refresh."""
    return f"{ahead.state}; wait={math.ceil(ahead.wait)}" if ahead.wait > 0.0 else str(ahead.state)


def _release(shown: CachedResponse) -> None:
    """Drop the body of an answer, and keep the head. The body can be read again from the copy."""
    ready = shown.ready
    assert ready.stored is not None
    shown.bodiless = True
    ready.stored.release()  # the head alone does not need the stored bytes of the copy
    # remove the body now, because the cache counts the memory of an answer when it stores the answer
    ready.body = None


def _is_current(shown: CachedResponse) -> bool:
    """Return whether an answer is still valid.

    The URL's stored record and the withdrawals must be unchanged, and a body that is not in memory must be in
    the same place.
    """
    archive = shown.located.archive
    assert archive is not None
    if shown.revision != archive.withdrawals.revision:
        return False
    if shown.bodiless and shown.releases != archive.releases:
        return False
    store = archive.store
    if shown.writes != (writes := store.writes):
        if (store.get(record_key(shown.located.fingerprint)) or b"") != shown.proof:
            return False
        shown.writes = writes
    return True


_HEAD_BYTES = 4096  # memory of a cached head of ordinary length
_CONSENT_LINES_MAX = 1024  # number of receipts whose lines are remembered; a line takes 300 bytes
_DISALLOWED_NOTE = b"X-Note: robots.txt forbade this page when it was last due for a fetch\r\n"
# The status of the answer to a request with `refresh=1` if there is no copy. The status depends on the
# `AheadState`. In states that are not listed, the status is 404, and the page's own state is shown.
_AHEAD = {
    AheadState.QUEUED: 202,
    AheadState.BLOCKED: 409,
    AheadState.PARKED: 409,
    AheadState.DISALLOWED: 403,
    AheadState.OUT_OF_SCOPE: 403,
    AheadState.RETIRED: 410,
    AheadState.FULL: 503,
}


def _accepted_instant(client_headers: ClientHeaders) -> float | None:
    return accept_datetime(client_headers.headers.get("Accept-Datetime", ""))
