"""Derives arguments of `crawler plan`, such as links per page, from a sample crawl.

The values are read from report.json, crawl.toml and the first `LINES_MAX` lines of pages.jsonl, and converted
to the units of the arguments. The sample crawl may still be running. Pages are assumed to be distributed over
hosts as in the sample: the largest host of the planned crawl is assumed to have the same share of the URLs as
the largest host of the sample. The largest host's share is computed from all known URLs, including those that
wait. Early in a crawl, politeness allows about as many fetches to a small host as to a large one, so the
fetched pages alone would show too small a share for the largest host.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from crawler.bench.planning import KIB
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import UsageError
from crawler.records import Outcome
from crawler.storage.rotating_file import generations, open_generation

# The maximum number of lines to read. A million lines take about ten seconds, and their hosts and directories
# take at most 300 MB of memory.
LINES_MAX = 1_000_000
# assumed compressed size of a page, as a share of its decoded size; used unless the sample shows a smaller
# share
_DEFLATED = 0.2


class _Line(msgspec.Struct):
    url: str = ""
    ts: str = ""
    bytes: int = 0
    took: float = 0.0
    status: int = 0


def facts(path: Path) -> dict[str, float]:
    """Return the arguments of `crawler plan` that can be derived from the crawl in `path`.

    Raises:
        UsageError: there is no crawl, or it has fetched nothing.
    """
    directory = CrawlDirectory(path)
    if not directory.exists():
        raise UsageError(f"--sample {path}: not a crawl directory")
    report = _report(directory)
    found, hosts_of_the_run = _of_lines(directory.pages_file, report.get("started", ""))
    if not found:
        raise UsageError(f"--sample {path}: the crawl has fetched no page")
    politeness = directory.settings.load().get("politeness", {})
    found |= {name: float(politeness[name]) for name in ("delay", "delay_factor") if name in politeness}
    found |= _of_report(report)
    if addresses := report.get("frontier", {}).get("addresses", 0):
        # A run knows the address of a host only if it has sent a request to this host.
        share = min(addresses / hosts_of_the_run, 1.0) if hosts_of_the_run else 1.0
        found["addresses"] = found["hosts"] * share
    return found


def _report(directory: CrawlDirectory) -> dict[str, Any]:
    try:
        return msgspec.json.decode(directory.report_file.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.MsgspecError):
        return {}


def _of_lines(journal: Path, started: str) -> tuple[dict[str, float], int]:
    """Return the arguments derived from the journal lines of answered fetches, or {} if there are no such lines.

    Also return the number of hosts that answered since `started`, a time as it is written in the journal.
    """
    hosts: Counter[str] = Counter()
    hosts_since: set[str] = set()
    directories: set[int] = set()
    count = secure = length = largest = 0
    took = 0.0
    for line in _lines(journal):
        scheme, _, rest = line.url.partition("://")
        host, _, target = rest.partition("/")
        hosts[host] += 1
        if line.ts >= started:
            hosts_since.add(host)
        directories.add(hash((host, target.rpartition("/")[0])))
        count += 1
        secure += scheme == "https"
        length += len(line.url)
        largest = max(largest, line.bytes)
        took += line.took
    if not count:
        return {}, 0
    found = {
        "hosts": float(len(hosts)),
        "largest_host": hosts.most_common(1)[0][1] / count,
        "directories": len(directories) / len(hosts),
        "secure": secure / count,
        "url_length": length / count,
        "latency": max(took / count, 0.001),
        "largest": max(largest / KIB, 1.0),
    }
    return found, len(hosts_since)


def _lines(journal: Path) -> Any:
    decoder, left = msgspec.json.Decoder(_Line), LINES_MAX
    for file in generations(journal):
        with open_generation(file) as lines:
            for text in lines:
                if left <= 0:
                    return
                left -= 1
                try:
                    line = decoder.decode(text)
                except msgspec.MsgspecError:
                    continue  # skip a line that is still being written
                if line.status:
                    yield line


def _of_report(report: dict[str, Any]) -> dict[str, float]:
    """Return the arguments derived from the counters of a run, or {} if the run has not ended yet."""
    pages = float(sum(report.get("pages", {}).get(str(ended), 0) for ended in Outcome))
    if not pages:
        return {}
    decoded, wire = (float(report["bytes"].get(name, 0)) for name in ("decoded", "wire"))
    frontier = report.get("frontier", {})
    found = {
        "page_size": max(decoded / pages / KIB, 0.01),
        "links": report["urls"].get("links", 0) / pages,
        "urls": report.get("due", {}).get("new", 0) / pages,
        "known_hosts": float(frontier.get("hosts", 0)),
        "handshakes": report.get("connections", {}).get("full", 0) / pages,
    }
    if waiting := frontier.get("todo", 0):
        largest = max((host["known"] for host in report.get("hosts", ())), default=0)
        found["largest_host"] = min(largest / (waiting + pages), 1.0)
    rendered = report.get("rendered", {})
    if shown := rendered.get("pages", 0):
        found |= {"rendered": min(shown / pages, 1.0), "render_cpu": rendered.get("cpu_ms", 0) / shown / 1000}
    if decoded:
        found |= _coding(min(wire / decoded, 1.0))
    return found


def _coding(share: float) -> dict[str, float]:
    """Estimate the share of pages sent compressed, and their compressed size.

    `share` is the number of bytes sent divided by the number of bytes after decoding.
    """
    if share <= _DEFLATED:
        return {"compressed": share, "coded": 1.0}
    return {"compressed": _DEFLATED, "coded": (1.0 - share) / (1.0 - _DEFLATED)}
