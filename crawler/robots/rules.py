"""The rules of one robots.txt for one product token (RFC 9309, 2.2; `robots/README.md`, "The file").

Only the lines that apply to our token are kept. So a parsed file usually takes a few hundred bytes, even if
the file is long.

Patterns and targets are first converted to one spelling of percent-encoding (`spelling`). Patterns without `*`
and `$` are prefixes, kept in a dict. To find the longest pattern that a target begins with, the beginnings of
the target are looked up in this dict, the longest first. Only beginnings as long as some prefix in the dict are
looked up. A wildcard pattern is looked up in the same way, by the part before its first wildcard. Then the
parts between the wildcards are matched from the left, in time linear in the target, without regular
expressions. `wildcards_max` bounds the cost of a verdict, and `rules_max` bounds the cost of a file. Rules
beyond one of these two limits are ignored, and their number is counted.
"""

import re
from collections.abc import Generator, Iterator
from typing import Generic, TypeVar
from urllib.parse import quote

import msgspec

from crawler.urls.canonical import normal_escapes

SLICE_BYTES = 16 << 10  # number of bytes read between two pauses; reading them takes 0.2 ms, at worst 5 ms
BOM = b"\xef\xbb\xbf"

# Limits for the Content-Usage, Content-Signal and License lines, which are kept as text for `consent/`. If a
# file has more lines of a kind, one line beyond the limit is kept. If a line is longer, one octet beyond the
# limit is kept. So readers can see that a limit was exceeded.
STATEMENTS_MAX, STATEMENT_OCTETS_MAX = 64, 8192

_USER_AGENT, _ALLOW, _DISALLOW, _CRAWL_DELAY, _SITEMAP, _USAGE, _SIGNAL, _LICENSE = range(8)
_FIELDS = {
    "user-agent": _USER_AGENT,
    "useragent": _USER_AGENT,
    "user agent": _USER_AGENT,
    "allow": _ALLOW,
    "disallow": _DISALLOW,
    "dissallow": _DISALLOW,
    "dissalow": _DISALLOW,
    "disalow": _DISALLOW,
    "diasllow": _DISALLOW,
    "disallaw": _DISALLOW,
    "crawl-delay": _CRAWL_DELAY,
    "crawldelay": _CRAWL_DELAY,
    "sitemap": _SITEMAP,
    "site-map": _SITEMAP,
    "content-usage": _USAGE,
    "content-signal": _SIGNAL,
    "license": _LICENSE,
}
# Matches the product token at the start of a user-agent line. Text after the token (`/1.0`, a comment) is
# ignored.
_AGENT = re.compile(r"([A-Za-z_-]+)(?=[\s/;(]|$)|(\*)(?=\s|$)")
# Each repetition is possessive (`++`, `*+`), so that the time is linear even if a line has 500,000 blanks.
_LINE = re.compile(rb"([^\r\n]*+)[\r\n]*+")
# Matches nearly all lines. Matching lines are read in half the time that other lines take.
_PLAIN_LINE = re.compile(rb"[ \t]*+([A-Za-z-]++)[ \t]*+:[ \t]*+([!\"$-~]*+)[ \t]*+(?:#.*+)?")
# Matches consecutive lines of the same kind, allow or disallow. Long files consist of such lines. All lines
# of a match are read at once, in a tenth of the time.
_REST = rb":[ \t]*+[!\"$-~]*+[ \t]*+[\r\n]++"
_RULE_LINES = re.compile(rb"(?:[Dd]isallow%b)++|(?:[Aa]llow%b)++" % (_REST, _REST))
# matches the value of a line of `_RULE_LINES`, if the value is not empty
_VALUE = re.compile(r":[ \t]*+([!-~]++)")
_PLAIN_FIELDS = {name.encode(): field for name, field in _FIELDS.items()}
_BLANK = " \t\x0b\x0c\x00"
_PRINTABLE = "".join(map(chr, range(0x21, 0x7F)))
_PLAIN_TARGET = re.compile(r"[!-#&-)+-~]*")  # printable ASCII except % $ *; such a text has only one spelling
_PLAIN_PATTERN = re.compile(r"[!-#&-~]*\$?")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")
_NUMBER_DIGITS_MAX = 12  # a larger delay, over 30,000 years, is a mistake


class Rule(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """One allow or disallow line, with its pattern in the common spelling (see `spelling`)."""

    pattern: str
    allow: bool

    @property
    def line(self) -> str:
        """The rule as a line of robots.txt."""
        return f"{'Allow' if self.allow else 'Disallow'}: {self.pattern}"


class Parsed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The rules of a robots.txt for one token, in the form in which they are stored.

    `rules` are sorted: the longest pattern comes first, and allow comes before disallow. `crawl_delay` is in
    seconds, or None if the chosen group has none. `ignored` is the number of rules beyond the limits. `group`
    is the user agent of the chosen group: our token, "*", or "" if there is no group for either. `usage` and
    `signals` are the values of the Content-Usage and Content-Signal lines that apply to the token. `licenses`
    are the values of all License lines. `consent/` interprets these values.
    """

    rules: tuple[Rule, ...] = ()
    crawl_delay: float | None = None
    sitemaps: tuple[str, ...] = ()
    ignored: int = 0
    usage: tuple[str, ...] = ()
    signals: tuple[str, ...] = ()
    licenses: tuple[str, ...] = ()
    group: str = ""


Kept = TypeVar("Kept")


class _ByPrefix(Generic[Kept]):
    """Maps prefixes of targets to values."""

    __slots__ = ("_kept", "_lengths")

    def __init__(self, kept: dict[str, Kept]) -> None:
        self._kept = kept
        self._lengths = sorted(set(map(len, kept)), reverse=True)

    def fitting(self, target: str) -> Iterator[Kept]:
        """Yield the values to which prefixes of `target` are mapped, that of the longest prefix first."""
        for length in self._lengths:
            if length <= len(target) and (kept := self._kept.get(target[:length])) is not None:
                yield kept


class RobotsRules:
    """The rules of one authority, ready for matching.

    >>> RobotsRules(Parsed((Rule("/private", allow=False),))).allowed("/private/x")
    False
    """

    __slots__ = ("crawl_delay", "parsed", "sitemaps", "_asked", "_plain", "_wildcards", "weight")

    def __init__(self, parsed: Parsed) -> None:
        self.parsed = parsed
        self.crawl_delay = parsed.crawl_delay
        self.sitemaps = parsed.sitemaps
        rules = parsed.rules
        plain: dict[str, Rule] = {}
        wildcards: dict[str, list[Rule]] = {}
        for rule in rules:
            if _is_wildcard(rule.pattern):
                wildcards.setdefault(_head(rule.pattern), []).append(rule)
            else:
                # of rules with equal patterns, the first is kept; an allow rule comes before a disallow rule
                plain.setdefault(rule.pattern, rule)
        self._plain, self._wildcards = _ByPrefix(plain), _ByPrefix(wildcards)
        # the latest verdict, cached because a URL is checked several times
        self._asked: tuple[str, Rule | None] | None = None
        # Approximate size in memory, in bytes. The cache limits the sum of these sizes.
        said = (*parsed.usage, *parsed.signals, *parsed.licenses)
        self.weight = 500 + 200 * len(rules) + 100 * len(self.sitemaps)
        self.weight += sum([len(rule.pattern) for rule in rules])
        self.weight += sum(100 + len(line) for line in said)

    def allowed(self, target: str) -> bool:
        """Return whether `target` (path and query, from the slash on) may be requested."""
        rule = self.rule(target)
        return rule is None or rule.allow

    def rule(self, target: str) -> Rule | None:
        """Return the rule that decides on `target`, or None if no rule matches and `target` is therefore allowed."""
        if target == "/robots.txt":
            return None
        if self._asked is None or self._asked[0] != target:
            self._asked = target, self._decide(spelling(target))
        return self._asked[1]

    def _decide(self, target: str) -> Rule | None:
        best = next(self._plain.fitting(target), None)
        for rules in self._wildcards.fitting(target):
            # the rules are ordered by rank, so the search ends at the first rule that cannot win
            for rule in rules:
                if best is not None and _rank(rule) >= _rank(best):
                    break
                if matches(rule.pattern, target):
                    best = rule
                    break
        return best

    def __repr__(self) -> str:
        rules, sitemaps = self.parsed.rules, self.sitemaps
        return f"Rules({len(rules)} rules, crawl_delay={self.crawl_delay}, {len(sitemaps)} sitemaps)"


def _rank(rule: Rule) -> int:
    """Return the rank of a rule. The lowest decides: longer patterns first, allow before disallow."""
    return -2 * len(rule.pattern) - rule.allow


def _head(pattern: str) -> str:
    """Return the prefix that all targets of a wildcard pattern have in common."""
    return pattern.removesuffix("$").partition("*")[0]


def reading(body: bytes, token: str, *, rules_max: int, wildcards_max: int) -> Generator[None, None, Parsed]:
    """Return the rules for `token` in `body`, the bytes of a robots.txt without content coding.

    Pause after every `SLICE_BYTES` bytes. This never fails. Unknown and malformed lines are skipped, as is any line
    that is not UTF-8. Rules beyond `rules_max`, and beyond `wildcards_max` with wildcards, are skipped and counted.
    """
    groups = _Groups(token.lower(), rules_max, wildcards_max)
    at, pause_at = len(BOM) if body.startswith(BOM) else 0, SLICE_BYTES
    while at < len(body):
        if (rules := _RULE_LINES.match(body, at, pause_at)) is not None:
            groups.add_rules(rules[0].decode("ascii"))
            at = rules.end()
        else:
            line = _LINE.match(body, at)
            assert line is not None, "the expression matches any text"
            if (found := _field(line[1])) is not None:
                groups.add(*found)
            at = line.end()
        if at >= pause_at:
            pause_at = at + SLICE_BYTES
            yield
    return groups.parsed()


class _Choice(msgspec.Struct, eq=False):
    """The rules and crawl delay read so far from the groups of one agent."""

    rules_left: int
    wildcards_left: int
    found: bool = False
    rules: dict[Rule, None] = {}
    crawl_delay: float | None = None
    ignored: int = 0
    usage: list[str] = []
    signals: list[str] = []

    def add(self, field: int, value: str) -> None:
        if field == _USAGE:
            _keep(self.usage, value)
        elif field == _SIGNAL:
            _keep(self.signals, value)
        elif field == _CRAWL_DELAY:
            self.crawl_delay = _longer(self.crawl_delay, _seconds(value))
        elif value and self._takes(value):
            self.rules[Rule(pattern_of(value), field == _ALLOW)] = None

    def add_rules(self, lines: str) -> None:
        """Add the rules in `lines`, a text that `_RULE_LINES` has matched."""
        allow, values = lines[0] in "Aa", _VALUE.findall(lines)
        if not ("*" in lines or "$" in lines or "%" in lines):
            taken = values[: self.rules_left]
            self.rules_left -= len(taken)
            self.ignored += len(values) - len(taken)
        else:
            taken = [pattern_of(value) for value in self._possible(values) if self._takes(value)]
        for pattern in taken:
            self.rules[Rule(pattern, allow)] = None

    def _possible(self, values: list[str]) -> list[str]:
        """Return the values not certainly beyond a limit; count the others. This halves the time of hostile files."""
        if not self.rules_left:
            possible = []
        elif not self.wildcards_left:
            possible = [value for value in values if "*" not in value and value[-1] != "$"]
        else:
            possible = values
        self.ignored += len(values) - len(possible)
        return possible

    def _takes(self, value: str) -> bool:
        """Return whether one more rule is within the limits. Count the rule in either case."""
        wildcard = _is_wildcard(value)
        if not self.rules_left or (wildcard and not self.wildcards_left):
            self.ignored += 1
            return False
        self.rules_left -= 1
        self.wildcards_left -= wildcard
        return True


class _Groups:
    """The state of reading a file.

    `_own` collects the lines for our product token, and `_any` the lines for `*`. `_present` lists which of
    these two collect the lines of the current group.
    """

    def __init__(self, token: str, rules_max: int, wildcards_max: int) -> None:
        self._token = token
        self._own = _Choice(rules_max, wildcards_max)
        self._any = _Choice(rules_max, wildcards_max)
        self._present: list[_Choice] = []
        self._in_head = False
        self._any_group = False
        self._sitemaps: dict[str, None] = {}
        self._licenses: list[str] = []
        self._signals_before: list[str] = []  # lines before the first group apply to all agents

    def add(self, field: int, value: str) -> None:
        if field == _USER_AGENT:
            self._add_agent(value)
        elif field == _SITEMAP:
            if value:
                self._sitemaps[value] = None
        elif field == _LICENSE:
            _keep(self._licenses, value)
        elif field == _SIGNAL and not self._any_group:
            _keep(self._signals_before, value)
        else:
            if field not in (_CRAWL_DELAY, _SIGNAL):
                self._in_head = False
            for choice in self._present:
                choice.add(field, value)

    def add_rules(self, lines: str) -> None:
        """Add the rules in `lines`, a text that `_RULE_LINES` has matched."""
        self._in_head = False
        for choice in self._present:
            choice.add_rules(lines)

    def _add_agent(self, value: str) -> None:
        self._any_group = True
        if not self._in_head:
            self._present = []
            self._in_head = True
        match = _AGENT.match(value)
        if match is None:
            return
        choice = self._any if match[2] else self._own if match[1].lower() == self._token else None
        if choice is not None and choice not in self._present:
            choice.found = True
            self._present.append(choice)

    def parsed(self) -> Parsed:
        choice = self._own if self._own.found else self._any
        rules = sorted(choice.rules, key=_rank)
        return Parsed(
            tuple(rules),
            choice.crawl_delay,
            tuple(self._sitemaps),
            choice.ignored,
            tuple(choice.usage),
            (*self._signals_before, *choice.signals)[: STATEMENTS_MAX + 1],
            tuple(self._licenses),
            self._token if self._own.found else "*" if self._any.found else "",
        )


def _keep(lines: list[str], value: str) -> None:
    if value and len(lines) <= STATEMENTS_MAX:
        lines.append(value[: STATEMENT_OCTETS_MAX + 1])


def _field(raw: bytes) -> tuple[int, str] | None:
    """Return (field, value) of a line, or None if the line is unreadable."""
    plain = _PLAIN_LINE.fullmatch(raw)
    if plain is not None and (known := _PLAIN_FIELDS.get(plain[1].lower())) is not None:
        return known, plain[2].decode("ascii")
    try:
        line = raw.partition(b"#")[0].decode("utf-8").strip(_BLANK)
    except UnicodeDecodeError:
        return None
    name, colon, value = line.partition(":")
    if not colon or name.strip(_BLANK).lower() not in _FIELDS:
        words = line.split()
        if len(words) != 2:
            return None
        name, value = words
    field = _FIELDS.get(name.strip(_BLANK).lower())
    return None if field is None else (field, value.strip(_BLANK))


def _seconds(value: str) -> float | None:
    """Return a crawl delay in seconds, or None if unreadable. Only the leading digits are used: `10s` is 10."""
    match = _NUMBER.match(value)
    return float(match[0]) if match and len(match[0]) <= _NUMBER_DIGITS_MAX else None


def _longer(first: float | None, second: float | None) -> float | None:
    if first is None or second is None:
        return second if first is None else first
    return max(first, second)


def spelling(target: str) -> str:
    """Return `target` in the common spelling, in which equal octets are always spelled alike.

    Non-ASCII characters and blanks are percent-encoded, escapes of unreserved characters are decoded, and
    hexadecimal digits become upper-case. Other escapes are kept, so `%2F` is not `/` (RFC 9309, 2.2.2). `*`
    and `$` are encoded, because patterns write these octets as `%2A` and `%24` (2.2.3).
    """
    if _PLAIN_TARGET.fullmatch(target):
        return target
    return _encode(target).replace("*", "%2A").replace("$", "%24")


def pattern_of(value: str) -> str:
    """Return a pattern with the percent-encoding that `spelling` also gives to targets.

    Several `*` in a row become a single `*`. A `$` is special only at the end.
    """
    if _PLAIN_PATTERN.fullmatch(value) and "**" not in value:
        return value
    anchor = "$" if value.endswith("$") else ""
    body = _encode(value.removesuffix("$")).replace("$", "%24")
    return re.sub(r"\*{2,}", "*", body) + anchor


def _encode(text: str) -> str:
    return normal_escapes(quote(text, safe=_PRINTABLE, errors="surrogatepass"))


def _is_wildcard(pattern: str) -> bool:
    return "*" in pattern or pattern[-1:] == "$"


def matches(pattern: str, target: str) -> bool:
    """Return whether `pattern` matches the beginning of `target`, in time linear in the length of `target`."""
    if not _is_wildcard(pattern):
        return target.startswith(pattern)
    anchored = pattern.endswith("$")
    first, *parts = (pattern[:-1] if anchored else pattern).split("*")
    if not target.startswith(first):
        return False
    if not parts:
        return len(target) == len(first)
    at, end = len(first), len(target)
    if anchored:
        last = parts.pop()
        end -= len(last)
        if end < at or not target.endswith(last):
            return False
    for part in parts:
        at = target.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True
