"""`crawler withdraw`: take stored pages down, undo that, or list what is withdrawn."""

import argparse
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec

from crawler.admin import withdrawal
from crawler.admin.withdrawal import TakeDown, Withdrawn
from crawler.cli import access, options
from crawler.cli.parsing import add_option
from crawler.clock import SystemClock, iso_time
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import Journal, end_journal, keep_journal, load_journal
from crawler.errors import UsageError
from crawler.pages.withdrawals import RuleFile, Withdrawal, load_rules
from crawler.printable import printable
from crawler.storage.files import Lock
from crawler.upgrade.ready import opened

COMMAND = "withdraw"
_EXAMPLES = """\
crawler withdraw https://example.org/page --reason "request of 2026-11-24" --dir example
  crawler withdraw --host example.org --dry-run --dir example
  crawler withdraw --prefix https://example.org/private/ --dir example
  crawler withdraw --before 2025-01-01 --dir example
  crawler withdraw --host example.org --undo --dir example
  crawler withdraw --host example.org --erase --dir example"""


def main(_command: str, argv: list[str]) -> int:
    """Withdraw pages, undo a withdrawal, count the pages, or list the withdrawals."""
    parser = options.parser(
        "withdraw",
        "Take stored pages down, in a crawl that is running or not: from now on they are not served, printed,\n"
        "exported or reported, and clients of the page server get 451 with the reason. URLs withdrawn by URL, host\n"
        "or prefix are not fetched again. The bytes stay in the archive, so --undo shows the pages again; --erase\n"
        "overwrites them, which cannot be undone. After a kill, repeat the command to complete it.",
        _EXAMPLES,
    )
    what = parser.add_argument_group("what (scheme and a leading www. are ignored)")
    what.add_argument("urls", nargs="*", metavar="URL", type=options.url, help="pages")
    what.add_argument("--host", type=options.url, help="all pages of this host")
    what.add_argument(
        "--prefix", type=options.url, metavar="URL", help="all pages whose URLs begin with this one"
    )
    add_option(
        what,
        "--before",
        "",
        "only copies fetched before this date or time (UTC), such as 2026-11; the pages may be fetched again",
        metavar="DATE",
    )
    parser.option("--reason", "", "shown to clients, and by `crawler why`", metavar="TEXT")
    how = parser.add_mutually_exclusive_group()
    add_option(how, "--dry-run", False, "only count the pages and their bytes")
    add_option(how, "--erase", False, "overwrite the copies in the WARC files; keep only a tombstone")
    add_option(how, "--undo", False, "show withdrawn pages again")
    add_option(how, "--list", False, "list what is withdrawn")
    parser.option("--json", False, "print JSON")
    args = parser.parse_args(argv)
    directory = opened(args.dir, COMMAND)
    if args.list:
        return _list(args)
    named = any((args.urls, args.host, args.prefix, args.before))
    results = carry_out(directory, _orders(args) if named or load_journal(args.dir) is None else [])
    if args.json:
        print(json.dumps([result.plain() for result in results], indent=2))
    else:
        print("\n".join(withdrawal.in_words(result) for result in results))
    return 0


def _orders(args: argparse.Namespace) -> list[TakeDown]:
    """Return the checked orders of a command line, one for each URL."""
    common = {name: getattr(args, name) for name in ("before", "reason", "undo", "dry_run", "erase")}
    named: list[dict[str, str]] = [{"url": url} for url in args.urls]
    named += [{name: value} for name in ("host", "prefix") if (value := getattr(args, name))]
    if len({*map(tuple, named)}) > 1:
        raise UsageError("withdraw: name only one of URLs, --host and --prefix")
    if not named and not args.before:
        raise UsageError("withdraw: name URLs, --host HOST, --prefix URL or --before DATE; or see --list")
    orders = [msgspec.convert({**common, **each}, TakeDown) for each in named or [{}]]
    for order in orders:
        order.rule(0.0)
    return orders


def carry_out(directory: CrawlDirectory, orders: Sequence[TakeDown]) -> list[Withdrawn]:
    """Complete the order that a killed program left, if there is one; then carry out `orders`. Return the results."""
    cut_off = load_journal(directory.path)
    unfinished = [msgspec.convert(cut_off.facts, TakeDown)] if cut_off is not None else []
    return [_carry_out(directory, order) for order in (*unfinished, *orders)]


def _carry_out(directory: CrawlDirectory, order: TakeDown) -> Withdrawn:
    """Carry out an order in all processes: over their control sockets, or directly if the crawl is at rest."""
    if access.is_answered(directory.path):
        result = _lead(directory, order, partial(access.ask, directory.path))
        _end_journal(directory)
        return result
    at_rest = partial(_ask_at_rest, directory)
    if not order.erase:
        return _lead(directory, order, at_rest)
    withdrawal.refuse_shipped(directory.path)
    with Lock(directory.path / "supervisor.lock", COMMAND):
        _refuse_in_use(directory)
        with _journal(directory, order):
            return _lead(directory, order, at_rest)


def _refuse_in_use(directory: CrawlDirectory) -> None:
    """Raise BusyError if another command uses a process, so that the erasure does not stop between two states."""
    for name in directory.process_names():
        Lock(directory.process(name) / "node.lock", COMMAND, brief=True).release()


@contextmanager
def _journal(directory: CrawlDirectory, order: TakeDown) -> Iterator[None]:
    """Keep the journal of an erasure during the block, and also after it if the block fails between two states.

    If the block fails before any rule is in force, for example because the disk is full, nothing is between two
    states, and other commands may open the directory.
    """
    before, is_begun = load_rules(directory.path), load_journal(directory.path) is not None
    try:
        keep_journal(directory.path, Journal(COMMAND, facts=msgspec.to_builtins(order)))
        yield
    except BaseException:
        if not is_begun and load_rules(directory.path) == before:
            end_journal(directory.path)
        raise
    _end_journal(directory)


def _end_journal(directory: CrawlDirectory) -> None:
    if load_journal(directory.path) is not None:
        end_journal(directory.path)


def _lead(
    directory: CrawlDirectory, order: TakeDown, ask: Callable[[dict[str, Any]], list[Any]]
) -> Withdrawn:
    rules = RuleFile(directory.path, directory.settings.config().pages.withdrawals_max)
    steps = withdrawal.conduct(order, rules, SystemClock().now())
    try:
        request = next(steps)
        while True:
            request = steps.send(ask(request))
    except StopIteration as end:
        result: Withdrawn = end.value
        return result


def _ask_at_rest(directory: CrawlDirectory, request: dict[str, Any]) -> list[Any]:
    """Carry out a request in each process of a crawl at rest, one after the other, with unlimited work per step."""
    if request["step"] == "apply":
        return []  # each process reads the rules when it is opened
    from crawler.crawl.lost_processes import begun_names

    names = begun_names(directory)
    return [access.ask_at_rest(directory, name, {**request, "entries": 0}) for name in names]


def _list(args: argparse.Namespace) -> int:
    rules = load_rules(args.dir)
    if args.json:
        print(json.dumps([withdrawal.plain_rule(rule) for rule in rules], indent=2))
    elif not rules:
        print("nothing is withdrawn")
    else:
        print("\n".join(f"{iso_time(rule.at)}  {withdrawal.named(rule)}{_because(rule)}" for rule in rules))
    return 0


def _because(rule: Withdrawal) -> str:
    said = f" ({printable(rule.reason)})" if rule.reason else ""
    if rule.erasing and not rule.erased:
        return f"{said}, erasure not finished: if no command is running, repeat it"
    return f"{said}, erased" if rule.erased else said
