"""Coordinates a withdrawal among the processes of a crawl, for the command line, HTTP and Python.

    rule file ─► apply ─► count                    withdrawn: no process shows the copies any more
    rule file ─► apply ─► detach ─► erase          erased: each step is completed by all processes before the next

A process may hold copies whose records only refer to a response in the segments of another process
(`pages/reshard.py`). If the response will be erased but a copy that refers to it stays, this copy needs bytes
of its own. So in the step `detach`, every process writes such copies again. No process erases anything before
all processes have completed the step `detach`.

`conduct` is a generator: it yields the request that every process must answer next, and receives the answers.
So the command line, HTTP and Python can each send the requests in their own way.
"""

from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from crawler.clock import iso_time
from crawler.errors import UsageError
from crawler.pages.shipping import refuse_elsewhere
from crawler.pages.withdrawals import RuleFile, Subject, Withdrawal
from crawler.printable import printable
from crawler.typed_time import typed_period
from crawler.wording import several

# the number of store entries that one request examines in a running process; this takes about 0.2 s
ENTRIES = 20_000

# Tells the operator which copies an erasure does not reach.
_REMAINS = """\
not erased: backups of the directory and exports that were made before; copies of WARC files in object storage, until
`crawler ship` or a crawl with pages.ship replaces them; the URLs themselves in pages.jsonl, crawler.log
and in links on other pages; on other machines of the crawl, run the command too"""

Requests = Generator[dict[str, Any], Sequence[Any], "Withdrawn"]


class TakeDown(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An operator's order to withdraw the copies of a URL, a host or a prefix, or those fetched `before` an instant.

    `before` is a date or time (`typed_time.py`). `undo` removes the
    withdrawal of the same copies. `dry_run` only counts the copies. `erase` overwrites their bytes.
    """

    url: str = ""
    host: str = ""
    prefix: str = ""
    before: str = ""
    reason: str = ""
    undo: bool = False
    dry_run: bool = False
    erase: bool = False

    def rule(self, now: float) -> Withdrawal:
        """Return the withdrawal rule that selects the copies that this order names.

        Raises:
            UsageError: the order names no copies, or an option is invalid.
        """
        if self.undo + self.dry_run + self.erase > 1:
            raise UsageError("withdraw: choose one of undo, dry run and erase")
        target = Subject(
            self.url, self.host, self.prefix, typed_period(self.before).first if self.before else 0.0
        )
        return target.rule(now, self.reason)


class Withdrawn(msgspec.Struct):
    """The result: the rule, the copies that it covers, and what was done (`withdrawn`, `erased`, `counted`, `undone`)."""

    done: str
    rule: Withdrawal
    pages: int = 0
    copies: int = 0
    bytes: int = 0

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        counts = {"pages": self.pages, "copies": self.copies, "bytes": self.bytes}
        return {"done": self.done, **plain_rule(self.rule), **counts}


def plain_rule(rule: Withdrawal) -> dict[str, Any]:
    """Return a rule for display: only the fields that the rule sets, with times in ISO 8601."""
    shown: dict[str, Any] = {"at": iso_time(rule.at)}
    shown |= {name: value for name in ("url", "host", "prefix", "reason") if (value := getattr(rule, name))}
    if rule.digest and not rule.url:
        shown["digest"] = rule.digest
    if rule.erasing:
        shown["erased"] = "done" if rule.erased else "begun"
    if rule.before:
        shown["before"] = iso_time(rule.before)
    return shown


def named(rule: Withdrawal) -> str:
    """Return the subject of a rule in words."""
    shown = plain_rule(rule)
    words = [
        f"{name} {shown[name]}" for name in ("url", "digest", "host", "prefix", "before") if name in shown
    ]
    return printable(", ".join(words))


def in_words(result: Withdrawn) -> str:
    """Return what was done in words, for all interfaces."""
    found = f"{several(result.pages, 'page')} ({several(result.copies, 'copy')}, {result.bytes:,} bytes)"
    if result.done == "counted":
        return f"{named(result.rule)}: {found} to be withdrawn"
    if result.done == "undone":
        return f"{named(result.rule)}: {found} shown again"
    if result.done == "erased":
        return f"{named(result.rule)}: {found} erased\n{_REMAINS}"
    again = "" if result.rule.before else "; these URLs are not fetched again"
    return f"{named(result.rule)}: {found} withdrawn{again}"


def conduct(order: TakeDown, rules: RuleFile, now: float) -> Requests:
    """Carry out an order; `rules` is the rule file of the crawl.

    Raises:
        UsageError: the order is invalid, or there is nothing to undo.
        ShippedError: copies are to be erased, but some WARC files lie in object storage only.
        StoreError: the disk failed.
    """
    rule = order.rule(now)
    if order.undo:
        result = Withdrawn("undone", rules.undo(rule))
        yield {"command": "withdraw", "step": "apply"}
        return (yield from _count(result))
    if order.dry_run:
        return (yield from _count(Withdrawn("counted", rule)))
    if order.erase:
        refuse_shipped(rules.directory)
    result = Withdrawn("withdrawn", rules.add(rule))
    if order.erase:
        return (yield from _erase(replace(result.rule, url=rule.url), rules))
    yield {"command": "withdraw", "step": "apply"}
    return (yield from _count(result))


def refuse_shipped(directory: Path) -> None:
    """Raise ShippedError if copies cannot be erased, because some WARC files are only in object storage."""
    refuse_elsewhere(sorted(directory.glob("*/warc")))


def _erase(rule: Withdrawal, rules: RuleFile) -> Requests:
    """Erase the copies that a rule in force covers."""
    rules.note_erasure(rule, done=False)
    yield {"command": "withdraw", "step": "apply"}
    result = Withdrawn("erased", rule)
    yield from _in_portions({"step": "detach", "rule": msgspec.to_builtins(rule)})
    yield from _add_up(result, "erase")
    rules.note_erasure(rule, done=True)
    yield {"command": "withdraw", "step": "apply"}
    return result


def _count(result: Withdrawn) -> Requests:
    yield from _add_up(result, "count")
    return result


def _add_up(result: Withdrawn, step: str) -> Generator[dict[str, Any], Sequence[Any], None]:
    """Carry out a step in all processes, and return the sum of their counts."""
    for answer in (yield from _in_portions({"step": step, "rule": msgspec.to_builtins(result.rule)})):
        result.pages += answer["pages"]
        result.copies += answer["copies"]
        result.bytes += answer["bytes"]


def _in_portions(step: Mapping[str, Any]) -> Generator[dict[str, Any], Sequence[Any], list[Any]]:
    """Repeat a step until every process has completed it; return all answers.

    Every process receives the same request. The request contains the place where each process must continue,
    taken from the answers of the previous round.
    """
    found: list[Any] = []
    places: dict[str, str] | None = None
    while places is None or any(places.values()):
        answers = yield {"command": "withdraw", **step, "begin": places or {}, "entries": ENTRIES}
        found += answers
        places = {answer["process"]: answer["next"] for answer in answers}
    return found
