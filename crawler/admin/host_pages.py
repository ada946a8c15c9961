"""Describes in words why hosts wait, and merges the host lists of several processes into one."""

import heapq
from collections.abc import Sequence
from typing import Any

from crawler.wording import describe_outcome

_TOTALS = ("hosts", "matched", "failing", "unsearched")


def described(host: dict[str, Any]) -> dict[str, Any]:
    """Return the facts about one host.

    The texts `said` tell why the host waits and how the fetch of each robots.txt ended.
    """
    robots = [each | {"said": describe_outcome(each["outcome"])} for each in host.get("robots", [])]
    return host | {"said": describe_outcome(host.get("cause", "")), "robots": robots}


def merged(answers: Sequence[dict[str, Any]], limit: int, missing: Sequence[str]) -> dict[str, Any]:
    """Return one list of up to `limit` hosts, best rank first, with the totals of all processes that answered.

    `missing` are the processes whose hosts are not in the list. In each row, the new field `said` describes
    in words why the host waits.
    """
    rows = list(heapq.merge(*(answer["rows"] for answer in answers), key=lambda row: -row["rank"]))[:limit]
    for row in rows:
        row["said"] = describe_outcome(row["cause"])
    totals = {name: sum(answer[name] for answer in answers) for name in _TOTALS}
    return totals | {"missing": list(missing), "rows": rows}
