"""Says in words what a command has changed in a crawl, for the command line, HTTP and the dashboard.

Signals have their own words (`change_signals.Signalled.in_words`), and so have withdrawals (`withdrawal.in_words`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

from crawler.urls.typed_url import cut
from crawler.wording import several

_SAID = {
    "pause": "paused: fetches in flight are completed, and no new fetch starts",
    "resume": "resumed",
    "stop": "stopping: fetches in flight are completed and stored",
    "block": "blocked: no new request is sent to this host",
    "unblock": "unblocked",
}


def said(request: Mapping[str, Any], answers: Sequence[Any]) -> str:
    """Return what the processes have done, given the request and their answers."""
    command = request["command"]
    if command == "seed":
        refused = [f"refused: {cut(each['url'])}: {each['why']}" for each in answers[0]["refused"]]
        return "\n".join([f"{answers[0]['queued']} queued", *refused])
    if command == "signal":
        return str(answers[0]["said"])
    if command == "retire":
        return _retired(answers)
    if command == "set":
        return ", ".join(f"{key} = {value}" for key, value in request["settings"].items())
    done = _SAID[command]
    return f"{answers[0]['host']}: {done}" if "host" in request else done


def _retired(answers: Sequence[Any]) -> str:
    count = sum(answer["retired"] for answer in answers)
    if not count and any(answer["stored"] for answer in answers):
        return (
            "0 waiting URLs dropped: the URLs that match are stored already, and stored pages are kept; "
            "`crawler withdraw URL` takes them down"
        )
    return f"{several(count, 'waiting URL')} dropped; stored pages are kept and refreshed as before"
