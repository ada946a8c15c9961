"""Decides the verdict on a URL: the first sentence of `crawler why`, and whether the URL may be fetched.

The command `why`, the page server (also for `refresh=1`), signals and the dashboard never contradict each
other about a URL, because they all use the same facts (`Commands.why`).
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from crawler.admin.render_reasons import REASONS
from crawler.pages.change_detection import SUCCESSES
from crawler.records import Outcome, PageState
from crawler.serve.interfaces import Ahead, AheadState
from crawler.urlfilter.rule_names import WITHDRAWN
from crawler.wording import PARKED_BY, describe_outcome, several

# What each state of a host means for a URL that waits in the host's queue.
_HOSTS = {
    "ready": "its host is ready; it is fetched when its turn comes",
    "in_flight": "another URL of its host is being fetched",
    "waits": "its host is waiting out the gap between requests",
    "waits_for_address": "another host at the same address is being fetched",
    "waits_for_look_up": "the DNS look-up of its host waits for other look-ups",
    "waits_for_robots": "the robots.txt of its host could not be fetched",
    "retries": "it will be retried",
    "backing_off": "its host failed recently",
    "blocked": "its host is blocked; `crawler unblock` lifts the block",
    "refused": "its host refused too many requests",
    "given_up": "its host was given up",
    "excluded": "its domain has too many hosts (crawl.hosts_per_domain)",
    "idle": "it is being fetched",
}
_SILENT = ("blocked", "refused", "given_up", "excluded")  # states in which a host receives no requests
# Maps the state of a record to the state that is shown for its page if there is no copy to serve.
_STATES = {
    PageState.FAILED: "failed",
    PageState.GONE: "gone",
    PageState.DENIED: "denied",
    PageState.REDIRECTED: "failed",
    PageState.STORED: "failed",
    PageState.RETIRED: "retired",
}
_DROPPED = "it was found but is in no queue; `crawler retire` removed it"


class UrlVerdict(NamedTuple):
    """The verdict on a URL: a sentence for `why`, and the word `state`, which is used only if no copy can be served."""

    state: str
    sentence: str


def verdict(answer: Mapping[str, Any]) -> UrlVerdict:
    """Return what happened to a URL, from the facts that `why` has collected."""
    found = _verdict(answer)
    if answer.get("record") or answer.get("withdrawn") or not answer.get("captures"):
        return found
    return found._replace(sentence=f"{found.sentence} Stored as a file of a page{_kept(answer)}.")


def _verdict(answer: Mapping[str, Any]) -> UrlVerdict:
    record = answer.get("record")
    if withdrawn := answer.get("withdrawn"):
        return UrlVerdict("withdrawn", _withdrawn(withdrawn))
    if record is not None:
        text, state = _tried(record, answer), _STATES[PageState(record["state"])]
        queued = answer.get("queue") == "to do"
        return UrlVerdict(state, f"{text[:-1]}; queued again: {_waits(answer)}." if queued else text)
    if queue := answer.get("queue"):
        if queue == "parked":
            return UrlVerdict("parked", f"Parked: {_parked(answer)}.")
        return UrlVerdict("todo", f"To do: {_waits(answer)}.")
    if answer["filter"] != "accepted":
        return UrlVerdict("filtered", f"Never fetched: {answer['reason']}.")
    if answer.get("dropped"):
        return UrlVerdict("retired", f"Dropped: {_DROPPED}.")
    if answer["known"]:
        text = "To do: it is known, and waits further back in its host's queue or on the way to it."
        return UrlVerdict("todo", text)
    if sender := answer.get("sender"):
        return UrlVerdict(
            "todo", f"To do: it waits in the outbox of {sender} for {answer['owner']}, which owns it."
        )
    ahead = prospect(answer)
    if not ahead.queued:
        return UrlVerdict("unknown", f"Not found yet, and it would not be fetched: {ahead.why}.")
    text = "Not found yet: no link that is followed leads to it, and it is not a seed; the filter would accept it."
    return UrlVerdict("unknown", text)


def prospect(facts: Mapping[str, Any]) -> Ahead:
    """Return whether a URL may be fetched (state QUEUED) or not, the reason, and the seconds its host waits."""
    if facts["filter"] == WITHDRAWN:
        return Ahead(AheadState.OUT_OF_SCOPE, facts["reason"])
    if facts["filter"] != "accepted" and facts.get("record") is None:
        return Ahead(AheadState.OUT_OF_SCOPE, facts["reason"])
    if facts.get("dropped"):
        return Ahead(AheadState.RETIRED, _DROPPED)
    if facts.get("queue") == "parked":
        return Ahead(AheadState.PARKED, _parked(facts))
    robots, waiting = facts.get("robots", {}), facts.get("waiting", {})
    if robots.get("denied"):
        return Ahead(AheadState.DISALLOWED, _robots(robots))
    host = waiting.get("state", "")
    if host in _SILENT:
        return Ahead(AheadState.BLOCKED, _HOSTS[host])
    if facts.get("paused"):
        return Ahead(AheadState.QUEUED, f"it is queued; the crawl is paused ({', '.join(facts['paused'])})")
    words = _HOSTS[host] if waiting.get("wait") and host in _HOSTS else "ask again later"
    return Ahead(AheadState.QUEUED, f"it is queued; {words}", waiting.get("wait", 0.0))


def _parked(facts: Mapping[str, Any]) -> str:
    return f"{PARKED_BY.get(facts['parked_by'], facts['parked_by'])}; raise the limit to queue it again"


# What a server requires if it answers with one of these statuses, and the command-line flags that provide it.
_WANTS = {
    401: "; it requires a login, or rejects the given one (--http-user and --http-password, --login, --load-cookies)",
    429: "; the host requests a slower crawl (--delay, --delay-factor)",
    407: "; the proxy requires a login, or rejects the given one (--proxy http://USER:PASSWORD@HOST:PORT)",
}


def _wants(record: Mapping[str, Any]) -> str:
    """Return a clause about the login, licence or slower crawl that an answer demands; "" if it demands none."""
    if record["outcome"] == Outcome.LICENSE_REQUIRED:
        return "; the site demands a licence token (RSL), and the crawler buys none"
    return _WANTS.get(record["status"], "")


def _tried(record: Mapping[str, Any], answer: Mapping[str, Any]) -> str:
    state, status, at = record["state"], record["status"], record["fetched_at"]
    robots, kept, again = answer.get("robots", {}), _kept(answer), _next_refresh(answer)
    last = f", the last at {record['unanswered_at']}" if record["unanswered_at"] else ""
    tries = f"{record['outcome']} after {several(record['attempts'], 'try')}{last}"
    answered = f"{status} at {at}" if status else tries
    if status == 304:
        answered = f"unchanged (304) at {at}"
    if state == PageState.DENIED:
        return (
            f"Not fetched again: {_robots(robots)}{kept}." if kept else f"Never fetched: {_robots(robots)}."
        )
    return {
        PageState.STORED: f"Stored: {_stored(record, answer, answered)}{_now(answer, kept)}{again}.",
        PageState.REDIRECTED: f"Redirects to {record['location']}: {answered}{again}.",
        PageState.GONE: f"Gone: {answered}{again}.",
        PageState.FAILED: f"Failed: {answered}{_why(record['error'])}{_wants(record)}{kept}{again}.",
        PageState.RETIRED: "Not fetched: the operator had withdrawn it, or erased its copies, when its turn came.",
    }[PageState(state)]


def _stored(record: Mapping[str, Any], answer: Mapping[str, Any], answered: str) -> str:
    """Return the clauses about the stored content and, if the last try to fetch it again failed, about this failure."""
    content = f"{_times(record['fetches'])}{_shown(record)}"
    if record["outcome"] in SUCCESSES:
        return f"{answered}, {content}"
    good = _good_copies(answer)
    copy = f"{good[0]['status']} at {good[0]['fetched_at']}, " if good else ""
    status, at = record["status"], record["fetched_at"] if record["status"] else record["unanswered_at"]
    failure = str(status) if status >= 400 else describe_outcome(record["outcome"])
    when = f" at {at}" if at else ""
    return f"{copy}{content}; the last try{when} failed: {failure}{_why(record['error'])}{_wants(record)}"


def _next_refresh(answer: Mapping[str, Any]) -> str:
    """Return a clause about the next try of a page whose last try returned no copy; "" if none is planned."""
    refresh = answer.get("refresh", {})
    if answer.get("queue") == "to do":
        return ""
    if refresh.get("state") not in ("failed", "away"):
        return (
            f"; a run that begins after {answer['later_try']} will try it again"
            if "later_try" in answer
            else ""
        )
    times = [refresh[name] for name in ("deadline", "host_ready") if refresh.get(name)]
    return f"; its next refresh is due at {max(times)}" if times else ""


def _shown(record: Mapping[str, Any]) -> str:
    """Return a clause about the page's renderings by a browser: reason, cost and failures; "" if there was none."""
    facts = record.get("shown")
    failed = _not_shown(facts) if facts and facts["failures"] else ""
    if not record.get("rendered"):
        return failed
    text = f"; its content is what a browser showed{failed and ' earlier'}"
    if not facts:
        return text
    missing = f", {facts['missing']} of them without an answer" if facts["missing"] else ""
    requests = f"{several(facts['requests'], 'request')}{missing}"
    cut = f"; stopped at its limit of {facts['broke']}" if facts["broke"] else ""
    added = "links or text" if facts["added"] else "nothing"
    why = REASONS.get(facts["why"], facts["why"])
    cost = f"{facts['cpu']:.2f} CPU s, {facts['took']:.1f} s, {requests}"
    return f"{text} ({why}; rendering added {added}; {cost}{cut}){failed}"


def _not_shown(facts: Mapping[str, Any]) -> str:
    """Return the clause that says how often the rendering failed."""
    times = "once" if facts["failures"] == 1 else f"{facts['failures']} times in a row"
    return f"; no browser could show it, {times}; --render auto tries again from {facts['again_at']} on"


def _withdrawn(withdrawn: Mapping[str, Any]) -> str:
    """Return the sentence that says when and why a URL was withdrawn, what is kept, and whether it is fetched again."""
    copies = withdrawn["copies"]
    kept = "no copy is kept"
    if copies:
        kept = f"{several(copies, 'copy', 'are')} kept, but not served or exported"
    again = "it may be fetched again" if withdrawn.get("again") else "it is not fetched again"
    return f"Withdrawn by the operator at {withdrawn['at']}{_why(withdrawn['reason'])}: {kept}; {again}."


def _now(answer: Mapping[str, Any], kept: str) -> str:
    """Return the clause that says how the site now restricts a stored page; "" if it does not restrict the page."""
    robots = answer.get("robots", {})
    if robots.get("denied"):
        return f"; {_robots(robots)} now, so it is not fetched again{kept}"
    return kept if withheld(answer) else ""


def _kept(answer: Mapping[str, Any]) -> str:
    """Return the clause that says whether the stored copy of an earlier answer is served; "" if there is no copy."""
    good = _good_copies(answer)
    if not good:
        return ""
    reason = withheld(answer)
    served = f"kept but not served ({_WITHHELD.get(reason, reason)})" if reason else "kept and served"
    return f"; the copy of {good[0]['fetched_at']} is {served}"


def _good_copies(answer: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the captures that show the page, newest first."""
    return [each for each in answer.get("captures", ()) if each["status"] // 100 == 2 and not each["broken"]]


_WITHHELD = {"robots.txt": "serve.on_disallow = withhold"}


def withheld(answer: Mapping[str, Any]) -> str:
    """Return why the copies of a URL are not shown: "withdrawn", "noarchive" or "robots.txt"; "" if they are shown."""
    robots, captures = answer.get("robots", {}), answer.get("captures", ())
    if answer.get("withdrawn"):
        return "withdrawn"
    if (answer.get("record") or {}).get("noarchive") or (captures and captures[0]["noarchive"]):
        return "noarchive"
    return "robots.txt" if robots.get("withheld") else ""


def _times(fetches: int) -> str:
    return "fetched once" if fetches <= 1 else f"fetched {fetches} times"


def _why(error: str) -> str:
    return f" ({error})" if error else ""


def _robots(robots: Mapping[str, Any]) -> str:
    if robots.get("denied"):
        return f"`{robots['line']}` in {robots['url']} forbids it"
    return "its host's robots.txt disallowed it at that time"


def _waits(answer: Mapping[str, Any]) -> str:
    """Return why a to-do URL waits, and until when. The URL itself is not tried again before `retry_at`."""
    waiting = answer["waiting"]
    state, until, cause = waiting["state"], waiting.get("ready_at"), waiting.get("cause")
    if answer.get("retry_at", "") > (until or ""):
        state, until = "retries", answer["retry_at"]
    text = _HOSTS.get(state, state)
    if state == "ready" and (failures := waiting.get("failures", 0)):
        text = (
            f"its host failed{f' {failures} times in a row' * (failures > 1)}, and is tried again in its turn"
        )
    if cause and state != "given_up":
        text += f" ({describe_outcome(cause)})"
    elif state == "given_up":
        text += f"{': ' * bool(cause)}{describe_outcome(cause)}; the next run tries it again"
    if until:
        text += f"; next try {until}"
    if paused := answer.get("paused"):
        text = f"the crawl is paused ({', '.join(paused)}); {text}"
    todo = waiting.get("todo", 0)
    return f"{text}; this host has {several(todo, 'URL')} to do"
