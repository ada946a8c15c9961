"""`crawler status`, `crawler why URL`, `crawler get URL`: inspect a crawl, running or not."""

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from crawler.admin.crawl_facts import CrawlFacts
from crawler.admin.crawl_wait import next_wait
from crawler.admin.eta import duration
from crawler.admin.explanation import SEARCHED_MAX, explanation, may_be_unfollowed
from crawler.admin.render_reasons import REASONS
from crawler.admin.status import Status, group, whole
from crawler.cli import access, options
from crawler.errors import NoCopyError, UsageError
from crawler.pages.holdings import HeldCopies, answering
from crawler.printable import printable
from crawler.records import CACHED
from crawler.storage.files import named_output
from crawler.wording import count_outcomes, describe_outcome, several, words

_TRAPS_SHOWN = 3  # number of parts of sites that `crawler status` names as perhaps endless
_HUB_KINDS = {
    "page": "on pages", "sitemap": "on sitemaps", "feed": "on feeds", "signal": "named by signals",
}  # fmt: skip


def main(command: str, argv: list[str]) -> int:
    """Run one of the three commands."""
    return {"status": _status, "why": _why, "get": _get}[command](argv)


def _print_json(value: object) -> None:
    print(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def _status(argv: list[str]) -> int:
    parser = options.parser(
        "status",
        "Show what a crawl is doing or has done; with -v, every counter.",
        "crawler status --dir example --json",
    )
    parser.option("--json", False, "print everything as JSON")
    parser.option("--hosts", 5, "list at most N hosts")
    parser.option("--signals", False, "show how reliable change signals are, by host and source")
    args = parser.parse_args(argv)
    if args.signals:
        return _signals(args)
    request = {"command": "status", "hosts": max(args.hosts, 50)}
    damage: list[str] = []
    parts = [Status.of(part) for part in access.ask(args.dir, request, damage)]
    status = whole(parts)
    if args.json:
        _print_json(status.plain() | {"crawl": CrawlFacts(args.dir).plain()})
    else:
        lines = _every_number(status) if args.verbose else _summary(status)
        lines += _traps(status.traps) + _refreshing(status.refreshing, args.hosts)
        lines += [_process_text(part) for part in parts if part.peers]
        print("\n".join(lines + _host_lines(status, args.hosts)))
    return access.exit_code(damage)


def _summary(status: Status) -> list[str]:
    """Return a summary of about six lines, enough for most users; leave out values that are zero."""
    frontier, count = status.frontier, status.counters.get
    filtered = sum(group(status.counters, "urls.filtered").values())
    received = status.received_bytes
    known = f"{several(status.due.new, 'URL')} of {several(count('urls.links', 0), 'link')}, {filtered:,} filtered"
    numbers = msgspec.structs.asdict(frontier)
    hosts = {name.removeprefix("hosts_"): n for name, n in numbers.items() if name.startswith("hosts_")}
    parked = {name.removeprefix("parked_"): n for name, n in numbers.items() if name.startswith("parked_")}
    rows = {
        "pages": _numbers(group(status.counters, "pages")) or "none yet",
        "to do": f"{several(frontier.todo, 'URL')}, {frontier.in_flight:,} of them in flight; "
        f"{several(status.due.pending, 'link')} pending",
        "known": known,
        "received": f"{received / 1e6:,.1f} MB" if received >= 1e6 else f"{received / 1e3:.1f} kB",
        "requests": _connections(group(status.counters, "connections")),
        "rendered": _rendered(group(status.counters, "rendered")),
        "hosts": f"{frontier.hosts:,}" + (f" ({_numbers(hosts)})" if any(hosts.values()) else ""),
        "parked": _numbers(parked),
    }
    if refreshed := group(status.counters, "refresh"):
        rows["refresh"] = _numbers(refreshed)
    if text := _freshness(status.refreshing):
        rows["fresh"] = text
    rows = _running(status) | rows
    if status.splitter is not None:
        rows["splitter"] = (
            f"{several(status.splitter.sent, 'link')} sent, {status.splitter.waiting:,} waiting"
        )
    return [f"{name + ':':<10}{text}" for name, text in rows.items() if text]


def _traps(places: Sequence[str]) -> list[str]:
    """Name the parts of sites that may be endless, and the settings that limit them."""
    if not places:
        return []
    more = f" and {len(places) - _TRAPS_SHOWN:,} more" if len(places) > _TRAPS_SHOWN else ""
    named = ", ".join(map(printable, places[:_TRAPS_SHOWN]))
    return [f"endless?  {named}{more} (filter.exclude, or the depth of an [[override]], limits them)"]


def _signals(args: argparse.Namespace) -> int:
    """Print how reliable the sitemaps and feeds are. Those with the most signals come first."""
    rows = [row for answer in access.ask(args.dir, {"command": "signals"}) for row in answer]
    rows.sort(key=lambda row: -row["signals"])
    if args.json:
        _print_json(rows)
    elif not rows:
        print(
            "no signals received yet (`crawler refresh` reads sitemaps and feeds again; `crawler signal URL` sends one)"
        )
    else:
        print(f"{'host':<40} {'source':<9} {'signals':>8} {'right':>6} {'changes told':>13} {'after':>8}")
        for row in rows:
            delay = "" if row["delay"] is None else duration(row["delay"])
            print(
                f"{row['host']:<40} {row['source']:<9} {row['signals']:>8,.0f} {row['precision']:>6.1%} "
                f"{row['recall']:>13.1%} {delay:>8}"
            )
    return 0


def _refreshing(refreshing: Mapping[str, Any], hosts: int) -> list[str]:
    """Describe the refreshing: age of copies, new pages, value of more bandwidth, largest hosts, arms of a comparison."""
    if not refreshing.get("pages"):
        return []
    rows = {}
    if ages := refreshing.get("ages"):
        rows["age"] = (
            f"half of the copies are younger than {duration(ages['median'])}, "
            f"nine in ten than {duration(ages['p90'])}, the oldest {duration(ages['oldest'])}"
        )
    if more := refreshing.get("more_rate"):
        rows["price"] = (
            f"{more['share']:.0%} more rate would add {100 * more['gain']:.2g} points of freshness"
        )
    rows |= _news(refreshing.get("news") or {})
    lines = [f"{name + ':':<10}{text}" for name, text in rows.items()]
    for host in refreshing.get("hosts", [])[:hosts]:
        lines.append(
            f"  {host['host']}: {several(host['pages'], 'page')}, {host['fresh']:.1%} expected to be current"
        )
    for arm in refreshing.get("arms", []):
        lines.append(f"  arm {arm['policy']}: {_arm_text(arm)}")
    return lines


def _news(news: Mapping[str, Any]) -> dict[str, str]:
    """Describe the new pages that refetches and signals have found, and how soon they were fetched."""
    rows = {}
    if found := news.get("found"):
        pace = "" if news["per_day"] is None else f" ({news['per_day']:,.3g} per day)"
        kinds = sorted(news["by_kind"].items(), key=lambda item: -item[1])
        shares = ", ".join(f"{count / found:.0%} {_HUB_KINDS.get(kind, kind)}" for kind, count in kinds)
        signals = " and by signals" * ("signal" in news["by_kind"])
        rows["news"] = (
            f"{several(found, 'new page')} found by refetching known pages{signals}{pace}: {shares}"
        )
    if unfound := round(news.get("unfound") or 0.0):
        missing = f"about {several(unfound, 'page', 'are')} not found yet"
        rows["news"] = f"{rows['news']}; {missing}" if found else missing
    if news.get("dated") and news.get("delay_median") is not None:
        rows["delay"] = (
            f"half of the new pages were fetched within {duration(news['delay_median'])} of their publication, "
            f"nine in ten within {duration(news['delay_p90'])} ({several(news['dated'], 'page')} with a date)"
        )
    return rows


def _arm_text(arm: Mapping[str, Any]) -> str:
    """Return the results of one arm of a comparison, with 95 % intervals."""
    found = f"{several(arm['refreshes'], 'refresh')}, {arm['changed']:,} of them found a change"
    parts = [several(arm["pages"], "page"), found]
    for name, text in (
        ("expected", "expected to be current"),
        ("seen", "of the time current, as measured by refreshes"),
    ):
        if name in arm:
            parts.append(f"{arm[name]:.1%} +- {1.96 * arm[f'{name}_error']:.1%} {text}")
    return ", ".join(parts)


def _freshness(refreshing: Mapping[str, Any]) -> str:
    """Return the expected freshness of the copies and the accuracy of the forecast; "" if nothing is refreshed."""
    if not refreshing.get("pages"):
        return ""
    expected = refreshing.get("expected_freshness")
    parts = [f"{several(refreshing['pages'], 'page')} kept"]
    if expected is not None:
        parts.append(f"{expected:.1%} expected to be current")
    rows = refreshing.get("calibration", [])
    if asked := sum(row["refreshes"] for row in rows):
        found, predicted = (
            sum(row[name] * row["refreshes"] for row in rows) / asked for name in ("found", "predicted")
        )
        parts.append(f"{found:.1%} of refreshes found a change, {predicted:.1%} predicted")
    return ", ".join(parts)


def _running(status: Status) -> dict[str, str]:
    """Return the health, state, speed and remaining work of a running crawl, or only the state of a crawl at rest."""
    processes = status.processes
    if not processes:
        return {"state": printable(str(status.health))}
    up = status.now - min(each["started"] for each in processes)
    paused = f", paused ({', '.join(status.paused)})" if status.paused else ""
    pids = ", ".join(f"{each['name']} pid {each['pid']}" for each in processes)
    lag = max(each.get("loop_lag", 0.0) for each in processes)
    return {
        "health": printable(str(status.health)),
        "state": f"running for {duration(up)}{paused}: {pids}",
        "speed": f"{status.speed:,.1f} pages/s{_reached(status.recent)}, event loop late by at most {1000 * lag:,.0f} ms",
        "waiting": _waiting(status),
        "left": status.outlook,
    }


def _waiting(status: Status) -> str:
    """Return what a crawl without a fetch in flight waits for; "" if it does not wait long."""
    wait = None if status.paused else next_wait(status)
    return "" if wait is None else printable(wait.described(status.now).removeprefix("waits "))


def _reached(recent: Mapping[str, float]) -> str:
    """Return text about the number of hosts per minute that answered for the first time."""
    span = recent.get("span", 0.0)
    return (
        f", {several(round(60.0 * recent.get('hosts', 0.0) / span), 'new host')} per minute"
        if span > 0.0
        else ""
    )


def _connections(counts: Mapping[str, int]) -> str:
    """Describe the connections: the share that were kept, and the number of each kind of handshake."""
    cached = counts.get(CACHED, 0)
    total = sum(counts.values()) - cached
    if not total:
        return f"none; {several(cached, 'answer')} of earlier runs" if cached else ""
    kept = counts.get("reused", 0) / total
    return (
        f"{kept:.0%} of {total:,} over a kept connection; {counts.get('full', 0):,} full and "
        f"{counts.get('resumed', 0):,} resumed TLS handshakes, {counts.get('plain', 0):,} without TLS"
        + (f"; {several(cached, 'answer')} of earlier runs" if cached else "")
    )


def _rendered(counts: Mapping[str, int]) -> str:
    """Return the line about pages that a browser showed, with the reasons; "" if there are no such pages."""
    pages, failed, held_back = (counts.get(name, 0) for name in ("pages", "failed", "held_back"))
    later = f"{held_back:,} put off after failed attempts" if held_back else ""
    if not pages:
        parts = [f"{several(failed, 'page')} that no browser could show" if failed else "", later]
        return "; ".join(filter(None, parts))
    why = _numbers({word: counts.get(f"why_{name}", 0) for name, word in REASONS.items()})
    parts = [
        f"{several(pages, 'page')}, {counts.get('added', 0):,} of them gained links or text"
        + f" ({why})" * bool(why),
        f"{counts.get('cpu_ms', 0) / pages / 1000:.2f} CPU s and {counts.get('ms', 0) / pages / 1000:.1f} s per page",
        f"{several(counts.get('requests', 0), 'request')}, {counts.get('cached', 0):,} from the cache, "
        f"{counts.get('missing', 0):,} without an answer",
        f"{failed:,} failed" if failed else "",
        later,
        f"{counts.get('cut', 0):,} stopped at a limit" if counts.get("cut", 0) else "",
    ]
    return "; ".join(filter(None, parts))


def _numbers(values: dict[str, int]) -> str:
    """Return the values that are not 0, the largest first."""
    ranked = sorted(values.items(), key=lambda item: -item[1])
    return count_outcomes(dict(ranked))


def _every_number(status: Status) -> list[str]:
    tree = status.plain()
    lines = [f"{'health:':<10}{printable(str(status.health))}"]
    for section in ("pages", "urls", "bytes", "frontier", "due", "splitter"):
        values = tree.get(section) or {}
        shown = ", ".join(f"{name} {_number(value)}" for name, value in values.items())
        if shown or section != "splitter":
            lines.append(f"{section + ':':<10}{shown or 'nothing yet'}")
    return lines


def _host_lines(status: Status, hosts: int) -> list[str]:
    lines = []
    # busy and failing hosts first
    ranked = sorted(status.waiting, key=lambda host: (host.state != "in_flight", -host.failures, -host.todo))
    for host in ranked[:hosts]:
        wait = f", ready in {host.wait:.1f} s" if host.wait > 0 else ""
        failed = f", {several(host.failures, 'failure')} in a row" if host.failures else ""
        cause = f" ({describe_outcome(host.cause)})" if host.cause else ""
        best = f" (best {host.best:.2g})" if host.best else ""
        lines.append(f"  {host.host}: {host.todo:,} to do{best}, {words(host.state)}{cause}{failed}{wait}")
    return lines


def _process_text(part: Status) -> str:
    """Return the state of one process: its share of the work, unreachable peers, and links that wait for a peer."""
    fetched, frontier = part.counters.get("pages.fetched", 0), part.frontier
    line = (
        f"{part.name + ':':<10}fetched {fetched:,}, to do {frontier.todo:,}, in flight {frontier.in_flight:,}"
    )
    for peer, state in part.peers[part.name].items():
        if state.connected is False:
            line += f"; {peer} is not connected ({state.last_ending or 'not tried yet'})"
        if state.outbox_links:
            line += f"; {several(state.outbox_links, 'link', 'wait')} for {peer}"
    return line


def _number(value: Any) -> str:
    if isinstance(value, dict):
        return "(" + ", ".join(f"{name} {_number(inner)}" for name, inner in value.items()) + ")"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _why(argv: list[str]) -> int:
    parser = options.parser(
        "why",
        "Explain the state of a URL: the rule that rejects it, what it waits for, or its record.",
        "crawler why https://example.org/page --dir example",
    )
    parser.add_argument("url", metavar="URL", type=options.url, help="any spelling of the URL")
    parser.option("--json", False, "print JSON")
    parser.option(
        "--search",
        SEARCHED_MAX,
        "search at most N stored pages for a nofollow link to a URL that was never found (20,000)",
    )
    args = parser.parse_args(argv)
    damage: list[str] = []
    answer = _explained(args, damage)
    if args.search > 0 and may_be_unfollowed(answer):
        from crawler.audit.unfollowed import unfollowed_facts

        answer |= unfollowed_facts(args.dir, answer["url"], args.search)
    if args.json:
        _print_json(answer)
    else:
        print(printable(answer.pop("verdict")))
        print(_why_text(answer))
    return access.exit_code(damage)


def _explained(args: argparse.Namespace, damage: list[str]) -> dict[str, Any]:
    """Return the facts about a URL from the process that owns it. `damage` gets lines about missing segments."""
    steps = explanation(args.url)
    try:
        request = next(steps)
        while True:
            request = steps.send(
                access.ask(args.dir, request, damage if request["command"] == "why" else None)
            )
    except StopIteration as end:
        answer: dict[str, Any] = end.value
        return answer


def _why_text(answer: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in answer.items():
        if isinstance(value, dict) and value:
            lines += [f"{indent}{name}:", _why_text(value, indent + "  ")]
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append(f"{indent}{name}:")
            lines += [_list_item(inner, indent + "  ") for inner in value]
        elif isinstance(value, list | tuple) and not any(value):
            continue
        elif value not in ("", 0, None, {}, False) or name in ("known",):
            lines.append(f"{indent}{name}: {printable(_in_digits(value))}")
    return "\n".join(lines)


def _in_digits(value: Any) -> Any:
    """Return a value for people to read: a number with six digits, and a sequence as a list of such numbers."""
    if isinstance(value, list | tuple):
        return [_in_digits(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _list_item(item: dict[str, Any], indent: str) -> str:
    """Return an item of a list with a dash before its first line only."""
    text = _why_text(item, indent + "  ")
    return f"{indent}- {text[len(indent) + 2 :]}"


def _get(argv: list[str]) -> int:
    args = _arguments_of_get(argv)
    page = _first_copy(args)
    if args.headers:
        head = "\n".join(map(printable, _head_lines(page)))
        _write([head.encode() + b"\n"], args.output)
        return 0
    if note := _note(page):
        print(f"crawler: {printable(args.url)} {printable(note)}", file=sys.stderr)
    _write_body(args, page)
    return 0


def _arguments_of_get(argv: list[str]) -> argparse.Namespace:
    parser = options.parser(
        "get",
        "Print the newest stored copy of a page: its decoded body, or its headers.",
        "crawler get https://example.org/ --headers",
    )
    parser.add_argument("url", metavar="URL", type=options.url, help="any spelling of the URL")
    parser.option(
        "--headers",
        False,
        "print the status line, the headers, and what the crawl knows of the copy (X-...) instead of the body",
    )
    parser.option("--with-noarchive", False, "allow pages that ask not to be archived")
    parser.option("--static", False, "print the server's answer, not what a browser showed (--render)")
    parser.option(
        "--screenshot", False, "print the picture (PNG) that a browser took of the page (render.screenshot)"
    )
    options.add_output(parser)
    parser.option(
        "--allow",
        "",
        "only a copy that may be used for USE, such as train-ai",
        metavar="USE",
        type=options.use,
    )
    args = parser.parse_args(argv)
    if args.screenshot and (args.headers or args.static):
        raise UsageError("--screenshot prints a picture, without --headers and --static")
    return args


def _head_lines(page: Mapping[str, Any]) -> list[str]:
    """Return the status line and the headers of a copy, then what the crawl knows of the copy."""
    lines = [f"HTTP {page['status']} {page['reason']}".rstrip()]
    lines += [f"{name}: {value}" for name, value in page["headers"]]
    lines.append(f"X-Crawled-At: {page['fetched_at']}")
    if page["fresh"] is not None:
        lines.append(f"X-Fresh-Probability: {page['fresh']:.3f}")
    if page["consent"]:
        from crawler.consent.describing import header_text

        lines.append(f"X-Consent: {header_text(page['consent'])}")
    return lines


def _write_body(args: argparse.Namespace, page: Mapping[str, Any]) -> None:
    if page["place"]:
        from crawler.pages.stored_bodies import decoded_content

        _write(decoded_content(page["place"]), args.output)
        return
    import base64

    content = page["content"]
    body = content if isinstance(content, bytes) else base64.b64decode(content)
    if args.screenshot:
        _check_picture(args, body)
    _write([body], args.output)


def _note(page: Mapping[str, Any]) -> str:
    """Say of a copy that is not a page, but a redirect or an error, what it is; return "" for a page."""
    status = page["status"]
    if 300 <= status < 400:
        target = next((value for name, value in page["headers"] if name.lower() == "location"), "")
        return f"redirects to {target}" if target else ""
    return f"is not a page: its server answered {status} {page['reason']}".rstrip() if status >= 400 else ""


def _check_picture(args: argparse.Namespace, picture: bytes) -> None:
    if not picture:
        raise NoCopyError(
            f"{args.url}: its copy has no picture; a crawl with --render and --set render.screenshot=true takes one"
        )
    if args.output is None and sys.stdout.isatty():
        raise UsageError("the picture is a PNG, not for a terminal; give -o FILE")


def _write(pieces: Iterable[bytes], path: Path | None) -> None:
    """Write to a file, or to standard output if no file is given."""
    if path is None:
        sys.stdout.buffer.writelines(pieces)
        sys.stdout.buffer.flush()
        return
    with named_output(path) as file:
        file.writelines(pieces)


def _first_copy(args: Any) -> dict[str, Any]:
    names = ("url", "headers", "with_noarchive", "static", "allow", "screenshot")
    request = {"command": "get"} | {name: getattr(args, name) for name in names}
    found = {
        f"{number:06d}": page for number, page in enumerate(access.ask(args.dir, request)) if page is not None
    }
    holdings = {name: msgspec.convert(page["holding"], HeldCopies) for name, page in found.items()}
    name = answering(holdings)
    if name is not None and not holdings[name].withheld:
        return found[name]
    use = f" that may be used for {args.allow}" if args.allow else ""
    raise NoCopyError(f"{args.url}: no copy{use} to show. {printable(_explained(args, [])['verdict'])}")
