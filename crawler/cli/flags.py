"""The flags that set a configuration key, in the groups in which `--help` shows them.

Each flag that sets a configuration key is a row of `FLAGS`. No other module of the command line names the key.
"""

import argparse
import re
import shlex
from itertools import chain
from typing import Any, NamedTuple

from crawler.cli.parsing import maybe_empty
from crawler.config.key_words import keys

# Groups in the order of `--help`. A command shows only the groups that contain one of its flags.
WHAT, HOW_MUCH, POLITENESS, IDENTITY, LOGIN = "what to crawl", "how much", "politeness", "identity", "login"
REFRESH, PROCESSES, OUTPUT = "refresh", "many processes", "output"
GROUPS = (WHAT, HOW_MUCH, POLITENESS, IDENTITY, LOGIN, REFRESH, PROCESSES, OUTPUT)

# The flags that a command lacks, because they would have no effect in it.
_LACKING = {"refresh": {"--patience", "--timestamping"}, "node": {"--processes"}}
# The flags of `crawler shell`, which fetches one page and stores nothing.
_OF_SHELL = {
    "--delay", "--delay-factor", "--limit-rate", "--robots", "--allow-network",
    "--contact", "--token", "--header", "--proxy", "--load-cookies",
}  # fmt: skip


class Flag(NamedTuple):
    """A flag that sets a key. If `metavar` is None, the flag is a switch. A `repeatable` flag collects its values."""

    name: str
    key: str
    metavar: str | None
    help: str
    repeatable: bool = False


# The flags of each group.
FLAGS = {
    WHAT: (
        Flag("--scope", "crawl.scope", "host|domain|prefix|any",
             "follow links to the seeds' hosts (default), registrable domains or URL prefixes, or any link"),
        Flag("--surt", "crawl.surts", "PREFIX",
             "add the URLs under this SURT prefix to the scope, such as http://(org,example,", repeatable=True),
        Flag("--include", "filter.include", "RE",
             "crawl only URLs that match one of these regular expressions", repeatable=True),
        Flag("--exclude", "filter.exclude", "RE",
             "skip URLs that match one of these regular expressions", repeatable=True),
        Flag("--accept-regex", "filter.include", "RE", "same as --include", repeatable=True),
        Flag("--reject-regex", "filter.exclude", "RE", "same as --exclude", repeatable=True),
        Flag("--render", "render.when", "never|auto|always",
             "show pages in a browser without network: never (default), where it adds something, or always"),
        Flag("--requisites", "crawl.requisites", None,
             "also fetch the images, style sheets, scripts and frames of pages"),
        Flag("--check-external", "crawl.check_external", None,
             "check each link out of scope once, for `crawler report`; its page is neither stored nor followed"),
        Flag("--order", "order.name", "NAME",
             "which new URLs to fetch first: breadth-first (default), depth, opic, words, or an order from a package"),
    ),
    HOW_MUCH: (
        Flag("--max-pages", "crawl.max_pages", "N",
             "stop this run after N fetches, including failed ones; several processes may exceed N; 0: no limit"),
        Flag("--max-time", "crawl.max_time", "T",
             "stop this run after this time, such as 90 (seconds) or '2 h'; 0: no limit"),
        Flag("--max-bytes", "crawl.max_bytes", "B",
             "stop this run after receiving B bytes, such as '10 GB'; 0: no limit"),
        Flag("--depth", "crawl.depth", "N",
             "follow at most N links from a seed; park URLs beyond; 0: only the seeds, -1: no limit"),
        Flag("--pages-per-host", "crawl.pages_per_host", "N",
             "fetch at most N URLs of a host; park the rest; -1: no limit"),
        Flag("--pages-per-domain", "crawl.pages_per_domain", "N",
             "fetch at most N URLs of a registrable domain; park the rest; -1: no limit"),
        Flag("--patience", "crawl.patience", "T",
             "end the crawl when every remaining URL must wait longer than this (5 min)"),
    ),
    POLITENESS: (
        Flag("--delay", "politeness.delay", "S", "minimum gap between requests to a host, in seconds (1)"),
        Flag("--delay-factor", "politeness.delay_factor", "K",
             "minimum gap as a multiple of the host's last response time (10)"),
        Flag("--rate", "crawl.rate", "R", "fetch at most R pages per second, over all processes; 0: no limit"),
        Flag("--limit-rate", "fetch.bytes_per_second", "B",
             "receive at most B bytes per second, over all hosts, such as 200k; 0: no limit"),
        Flag("--concurrency", "crawl.concurrency", "N", "fetches in flight per process (500)"),
        Flag("--robots", "robots.policy", "obey|ignore",
             "obey robots.txt (default), or ignore it (only for your own sites)"),
        Flag("--allow-network", "network.allow_networks", "CIDR",
             "allow a private or special-purpose network, such as 127.0.0.0/8", repeatable=True),
    ),
    IDENTITY: (
        Flag("--contact", "identity.contact", "URL-or-mail", "contact address in the User-Agent"),
        Flag("--token", "identity.token", "NAME", "product token in the User-Agent (crawler)"),
        Flag("--header", "identity.headers", "'K: V'",
             "add a header field to every request; fields with credentials go only to the seeds' hosts", repeatable=True),
        Flag("--proxy", "fetch.proxy", "URL",
             "send all requests through this HTTP or SOCKS proxy, such as socks5://127.0.0.1:1080"),
    ),
    LOGIN: (
        Flag("--load-cookies", "fetch.cookies_file", "FILE",
             "send the cookies in this cookies.txt, as written by browsers and curl"),
    ),
    REFRESH: (
        Flag("--timestamping", "crawl.timestamping", None,
             "check every known page once and store those that have changed"),
        Flag("--refresh-share", "refresh.share", "S",
             "share of the fetches spent on known pages, 0 to 1; 0: new URLs always go first; "
             "auto, or no value: let the crawl value decide (default of `crawler refresh`)"),
        Flag("--policy", "refresh.policy", "NAME",
             "order of refreshes: ncis (default), greedy, cis, azar-lds, uniform, interval"),
        Flag("--arms", "refresh.arms", "A,B",
             "compare refresh policies on disjoint sets of pages at equal rates; `crawler status` shows the result"),
    ),
    PROCESSES: (
        Flag("--processes", "crawl.processes", "N", "crawl with N processes on this machine (1)"),
    ),
    OUTPUT: (
        Flag("--keep-copies", "pages.keep_copies", "N",
             "keep the newest N copies of each page, and free the disk space of older ones; 0 keeps all (default)"),
        Flag("--serve", "serve.address", "ADDRESS:PORT",
             "serve the stored pages over HTTP while the crawl runs"),
        Flag("--admin", "admin.address", "ADDRESS:PORT|off",
             "address of the dashboard and the metrics (127.0.0.1:8081)"),
        Flag("--trace", "crawl.trace", None,
             "record the URLs that reach the splitter, for `crawler lab cache`"),
    ),
}  # fmt: skip


def grouped(parser: argparse.ArgumentParser) -> dict[str, argparse._ArgumentGroup]:
    """Add the groups to a parser; return them by name. `--help` does not show empty groups."""
    return {name: parser.add_argument_group(name) for name in GROUPS}


WITH_FLAGS = ("crawl", "refresh", "node", "shell", "config")  # other commands set keys with --set only


def as_flags(message: str, command: str = "crawl") -> str:
    """Replace the settings in a message (`section.key=value`, `see section.key`) by the flags that set them.

    >>> as_flags("give identity.contact=URL, or robots.rules_max=5; see fetch.proxy")
    'give --contact URL, or --set robots.rules_max=5; see --proxy'
    >>> as_flags("give politeness.delay=0 again", "seed")
    'give --set politeness.delay=0 again'
    >>> as_flags("give crawl.timestamping=true")
    'give --timestamping'
    """
    has_flags = command in WITH_FLAGS

    def given(setting: re.Match[str]) -> str:
        key, value = setting.groups()
        if key not in keys():
            return setting[0]
        name = flag_of(key) if has_flags else ""
        if has_flags and value == "true" and (switch := flag_of(key, switch=True)):
            return switch
        return f"{name} {value}" if name else f"--set {shlex.quote(f'{key}={value}')}"

    def seen(setting: re.Match[str]) -> str:
        return f"see {has_flags and flag_of(setting[1]) or setting[1]}"

    return _SEE.sub(seen, _GIVEN.sub(given, message))


_GIVEN = re.compile(r"(?<!--set )(?<![\w./'-])([a-z_]+\.[a-z_]+)=(\[[^]]*\]|[^\s,;)]+)")
_SEE = re.compile(r"\bsee ([a-z_]+\.[a-z_]+)\b")


def flag_of(key: str, *, switch: bool = False) -> str:
    """Return the name of the flag that takes a value for `key`, or of the one that sets it to true; "" if none."""
    flags = chain.from_iterable(FLAGS.values())
    return next((flag.name for flag in flags if flag.key == key and (flag.metavar is None) == switch), "")


def add_config_flags(groups: dict[str, argparse._ArgumentGroup], command: str) -> None:
    """Add the flags of `command` to the groups of its parser."""
    for group, flag in ((group, flag) for group, flags in FLAGS.items() for flag in flags):
        if flag.name in _LACKING.get(command, ()) or (command == "shell" and flag.name not in _OF_SHELL):
            continue
        add_flag(groups[group], flag)


def add_flag(group: argparse._ArgumentGroup, flag: Flag) -> None:
    """Add a flag to a group; its value is stored under its key."""
    how: dict[str, Any] = {"dest": flag.key, "help": flag.help, "metavar": flag.metavar}
    if flag.metavar is None:
        how |= {"action": "store_const", "const": True}
    else:
        how["type"] = maybe_empty  # the check of the key decides whether its value may be empty
    if flag.repeatable:
        how["action"] = "append"
    elif flag.name == "--refresh-share":
        how |= {"nargs": "?", "const": "auto"}
    group.add_argument(flag.name, **how)
