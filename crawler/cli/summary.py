"""Computes the summary and the exit code with which a run ends."""

from pathlib import Path
from typing import Any

from crawler.cli.parsing import quoted
from crawler.errors import StoreError
from crawler.records import CACHED
from crawler.wording import count_outcomes, several

# the exit codes 14 and 15 are those of Browsertrix
LIMIT_CODES = {"disk": StoreError.exit_code, "max_bytes": 14, "max_time": 15}


def exit_code(report: dict[str, Any]) -> int:
    """Return the exit code of the limit that stopped the run (`LIMIT_CODES`), or 0 if none did.

    A limit on size or time counts only if URLs were left to fetch.
    """
    code = LIMIT_CODES.get(report.get("stopped_by") or "", 0)
    return code if code == StoreError.exit_code or report.get("frontier", {}).get("todo") else 0


def incomplete(report: dict[str, Any]) -> str:
    """Return one line about the incomplete bodies that this run kept, or "" if there are none."""
    bodies = report["run"].get("bodies", {})
    kinds = [
        (
            bodies.get("cut", 0),
            "longer than fetch.body_bytes_max, fetch.wire_bytes_max, fetch.file_bytes_max or sitemaps.bytes_max",
        ),
        (bodies.get("broken_off", 0), "broken off by the server or a time limit at the last try"),
    ]
    said = ", ".join(f"{count:,} {why}" for count, why in kinds if count)
    return said and f"stored incomplete: {said}; the field truncated in pages.jsonl marks them"


def _nothing_new(report: dict[str, Any]) -> bool:
    """Return whether the crawl was already complete before the run."""
    run = report["run"]
    asked = any([*run.get("pages", {}).values(), *run.get("refresh", {}).values()])
    return report["stopped_by"] == "done" and not asked and not report["frontier"]["todo"]


def summary(report: dict[str, Any], directory: Path, command: str = "crawl") -> str:
    """Return the summary printed at the end of a run."""
    run = report["run"]
    pages = run.get("pages", {})
    failed = {name: n for name, n in sorted(pages.items()) if name in _FAILURES}
    frontier, where = report["frontier"], quoted(directory)
    lines = [
        f"{report['stopped_by'] or 'ended'} after {report['seconds']:.1f} s: "
        f"{several(pages.get('fetched', 0), 'page')} fetched, "
        f"{run.get('bytes', {}).get('wire', 0) / 1e6:,.1f} MB received; "
        f"{several(frontier['todo'], 'URL')} to do, {frontier['parked']:,} parked"
    ]
    if refreshed := run.get("refresh", {}):
        same = refreshed.get("content_same", 0) + refreshed.get("unchanged", 0)
        first = refreshed.get("first_copies", 0)
        lines.append(
            f"refreshed: {several(refreshed.get('done', 0) - first, 'page')} fetched again; "
            f"{refreshed.get('content_changed', 0):,} had changed, {same:,} had not"
        )
        if first:
            lines.append(f"fetched after failures in earlier runs: {several(first, 'page')}")
        without_copy = {
            name: refreshed.get(name, 0) for name in sorted(_FAILURES | {"redirect", "truncated"})
        }
        if any(without_copy.values()):
            lines.append(f"not refreshed: {count_outcomes(without_copy)}")
    if cached := run.get("connections", {}).get(CACHED, 0):
        lines.append(f"from earlier runs: {several(cached, 'answer')}, without a request")
    if command == "crawl" and _nothing_new(report):
        lines.append(
            "complete; known pages are not fetched again (use crawler refresh, or --fresh to start over)"
        )
    if any(failed.values()):
        lines.append(f"not fetched: {count_outcomes(failed)}")
    if unwritten := run.get("bodies", {}).get("unwritten"):
        lines.append(
            f"stored without their bodies because of an error in the crawler (see the log): {unwritten:,}"
        )
    if report["conservation"] != "holds":
        lines += [f"counting error: {problem}" for problem in report["conservation"]]
    stored = f"pages: {where}/*/warc   " if any(directory.glob("*/warc/*")) else ""
    lines.append(f"{stored}fetch log: {where}/pages.jsonl   report: {where}/report.json")
    if frontier["todo"] or command == "refresh":
        lines.append(f"continue with: crawler {command} --dir {where}")
    return "\n".join(lines)


_FAILURES = {
    "bad_redirect", "gone", "client_error", "license_required", "temporary", "host_busy", "unexpected_status",
    "bad_status", "header_too_large", "framing", "header_timeout", "dns_error", "dns_not_found", "address_denied",
    "connect_error", "certificate_expired", "certificate_mismatch", "certificate_untrusted", "tls_error", "reset",
    "proxy_error", "not_rendered", "internal_error", "robots_denied",
}  # fmt: skip
