"""Withdrawals are rules by which the operator takes down stored pages (`pages/README.md`, "Withdrawals").

    DIR/withdrawn.json    {"rules": [{"at": ..., "host": "h.example", "reason": ...}, ...]}

    kind of rule     covers                                           stops new fetches
    url              copies of this URL                               yes
    host             copies of the URLs of this host                  yes
    prefix           copies of the URLs that begin with this prefix   yes
    these + before   the same copies, if fetched before an instant    no
    before alone     all copies fetched before an instant             no

The bytes of the copies that a rule covers stay in the archive until they are erased (`erasure.py`). A rule can be
undone until then. A rule for a URL holds the URL and its digest. When the copies that the rule covers are erased,
the URL is removed from the rule, and the digest remains.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from crawler.errors import DamageError, UsageError, reason_of
from crawler.storage.faults import reach
from crawler.storage.files import Lock, atomic_write
from crawler.urls.canonical import duplicate_key, hostname
from crawler.urls.typed_url import looked_up, whole_host

FILE = "withdrawn.json"


class Withdrawal(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """One withdrawal. At most one of `digest`, `host` and `prefix` is set; this field selects the URLs.

    `at` is the instant of the withdrawal. `digest` is the `url_digest` of `url`. Once the copies are erased,
    `url` is "". `prefix` is the beginning of a URL, in the form that `place_of` returns. `before` limits the
    rule to copies that were fetched before that instant; 0 means no limit. `erasing` is set before the first
    copy is erased, and `erased` after the last copy.
    """

    at: float
    url: str = ""
    digest: str = ""
    host: str = ""
    prefix: str = ""
    before: float = 0.0
    reason: str = ""
    erasing: bool = False
    erased: bool = False

    @property
    def key(self) -> tuple[str, str, str, float]:
        """The identity of a rule: the URLs and times that it covers. Rules with the same key are the same rule."""
        return self.digest, self.host, self.prefix, self.before

    @property
    def stops_fetches(self) -> bool:
        """True if the URLs must not be fetched again, because the rule covers copies of any age."""
        return not self.before

    def is_about(self, url: str) -> bool:
        """Return whether `url` (in request form) is one of the rule's URLs."""
        if self.digest:
            return url_digest(url) == self.digest
        if self.host:
            return _without_www(hostname(url)) == self.host
        return place_of(url).startswith(self.prefix)

    def covers(self, fetched_at: float) -> bool:
        """Return whether the rule covers a copy fetched at this instant."""
        return not self.before or fetched_at < self.before


class Erased(msgspec.Struct, frozen=True, array_like=True):
    """The tombstone of a URL whose copies were erased: the URL's digest, the instant and the reason."""

    digest: str
    at: float
    reason: str = ""


class Subject(NamedTuple):
    """The pages that a command names: by a URL, a host or a prefix, and by the instant `before` (0: no limit)."""

    url: str = ""
    host: str = ""
    prefix: str = ""
    before: float = 0.0

    def rule(self, at: float, reason: str = "") -> Withdrawal:
        """Return the withdrawal rule for the pages that this subject names.

        Raises:
            UsageError: no subject or more than one is named, or one that is not a host or an http(s) URL.
        """
        if sum(map(bool, (self.url, self.host, self.prefix))) > 1:
            raise UsageError("withdraw: name only one of a URL, a host and a prefix")
        if not any(self):
            raise UsageError("withdraw: name a URL, a host, a prefix or a date")
        if self.url:
            url = looked_up(self.url)
            return Withdrawal(at, url=url, digest=url_digest(url), before=self.before, reason=reason)
        if self.host:
            host = whole_host(self.host, "a withdrawal by host")
            return Withdrawal(at, host=_without_www(host), before=self.before, reason=reason)
        prefix = place_of(looked_up(self.prefix)) if self.prefix else ""
        return Withdrawal(at, prefix=prefix, before=self.before, reason=reason)


def _without_www(host: str) -> str:
    return host[4:] if host.startswith("www.") and "." in host[4:] else host


def place_of(url: str) -> str:
    """Return a URL (request form) without its scheme and a leading `www.`.

    >>> place_of("https://www.example.org/a?b")
    'example.org/a?b'
    """
    return _without_www(url.partition("://")[2])


def url_digest(url: str) -> str:
    """Return the SHA-256, in hex, of a URL's duplicate key. The key has no scheme and no leading `www.`."""
    return hashlib.sha256(place_of(duplicate_key(url).decode("ascii")).encode()).hexdigest()


class Withdrawals:
    """The rules that are in force in a crawl directory. Without a directory, there are no rules.

    Raises:
        DamageError: the file cannot be read.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self.revision = 0  # increases at every reload, to let callers notice a change
        self._listeners: list[Callable[[], Iterator[None]]] = []
        self._index(())
        if directory is not None:
            self.reload()

    def reload(self) -> None:
        """Read the rules again, after a command changed them."""
        for _ in self.reloading():
            pass

    def reloading(self) -> Iterator[None]:
        """Do the same as `reload`, in steps, so that other work can run in between.

        The rules are in force at the first pause.
        """
        if self._directory is not None:
            self._index(load_rules(self._directory))
        self.revision += 1
        yield
        for listener in self._listeners:
            yield from listener()

    def notify(self, listener: Callable[[], Iterator[None]]) -> None:
        """Carry out the steps of `listener` at every later reload. A repeated call of this method has no effect."""
        if listener not in self._listeners:
            self._listeners.append(listener)

    def _index(self, rules: Sequence[Withdrawal]) -> None:
        self.rules = tuple(rules)
        self._digests: dict[str, list[Withdrawal]] = {}
        self._hosts: dict[str, list[Withdrawal]] = {}
        self._prefixes: dict[str, list[Withdrawal]] = {}  # by host
        self._everywhere: list[Withdrawal] = []
        for rule in self.rules:
            if rule.digest:
                self._digests.setdefault(rule.digest, []).append(rule)
            elif rule.host:
                self._hosts.setdefault(rule.host, []).append(rule)
            elif rule.prefix:
                self._prefixes.setdefault(hostname(f"http://{rule.prefix}"), []).append(rule)
            else:
                self._everywhere.append(rule)

    def __bool__(self) -> bool:
        return bool(self.rules)

    def of_copy(self, url: str, fetched_at: float) -> Withdrawal | None:
        """Return a rule that covers a copy of `url` (request form) fetched at an instant, or None if no rule does."""
        if not self.rules:
            return None
        return next((rule for rule in self._about(url) if rule.covers(fetched_at)), None)

    def of_url(self, url: str) -> Withdrawal | None:
        """Return a rule that withdraws all copies of `url` (request form), of any age, or None if no rule does."""
        if not self.rules:
            return None
        return next((rule for rule in self._about(url) if rule.stops_fetches), None)

    def stops(self, url: str) -> bool:
        """Return whether a URL (request form) must not be fetched."""
        return bool(self.rules) and self.of_url(url) is not None

    def _about(self, url: str) -> Iterable[Withdrawal]:
        yield from self._everywhere
        if self._hosts or self._prefixes:
            host = _without_www(hostname(url))
            yield from self._hosts.get(host, ())
            yield from (rule for rule in self._prefixes.get(host, ()) if rule.is_about(url))
        if self._digests:
            yield from self._digests.get(url_digest(url), ())

    def __repr__(self) -> str:
        return f"Withdrawals({len(self.rules)} rules)"


# -- the file


def load_rules(directory: Path) -> tuple[Withdrawal, ...]:
    """Return the rules of a crawl directory."""
    path = directory / FILE
    try:
        return tuple(msgspec.json.decode(path.read_bytes(), type=dict[str, list[Withdrawal]])["rules"])
    except FileNotFoundError:
        return ()
    except (OSError, msgspec.MsgspecError, KeyError, UnicodeDecodeError) as error:
        raise DamageError(f"{path}: the withdrawals cannot be read: {reason_of(error)}") from error


def rules_changed_at(directory: Path) -> int:
    """Return the time of the last change to the rules of a crawl directory, in ns, or 0 if there are no rules."""
    try:
        return (directory / FILE).stat().st_mtime_ns
    except OSError:
        return 0


class RuleFile:
    """Changes the rules of a crawl directory, one command at a time.

    Each change is durable when its method returns. `rules_max` is the setting `pages.withdrawals_max`.
    """

    def __init__(self, directory: Path, rules_max: int) -> None:
        self.directory = directory
        self._rules_max = rules_max

    def add(self, rule: Withdrawal) -> Withdrawal:
        """Put a rule in force, and return it. A rule that is already in force keeps its original instant.

        Raises:
            UsageError: there are too many rules.
            StoreError: the disk failed.
        """
        with self._locked():
            rules = {each.key: each for each in load_rules(self.directory)}
            known = rules.get(rule.key)
            if known is not None:
                rule = replace(known, reason=rule.reason or known.reason)
            elif len(rules) >= self._rules_max:
                raise UsageError(
                    f"withdraw: {len(rules):,} withdrawals are in force (pages.withdrawals_max); "
                    "withdraw a prefix or a host instead of single URLs"
                )
            if rule != known:
                self._write({**rules, rule.key: rule}.values())
                reach("withdrawal recorded")
            return rule

    def undo(self, rule: Withdrawal) -> Withdrawal:
        """Remove a rule and return it.

        Raises:
            UsageError: the rule is not in force, or its copies have been erased.
        """
        with self._locked():
            rules = {each.key: each for each in load_rules(self.directory)}
            known = rules.pop(rule.key, None)
            if known is None:
                raise UsageError(
                    "withdraw: no such withdrawal is in force; `crawler withdraw --list` shows them"
                )
            if known.erasing:
                raise UsageError("withdraw: the copies are erased; an erasure cannot be undone")
            self._write(rules.values())
            return known

    def note_erasure(self, rule: Withdrawal, *, done: bool) -> Withdrawal:
        """Record that the copies to which a rule applies will be erased.

        With `done`, record that they have been erased, and remove the URL from the rule.
        """
        with self._locked():
            rules = {each.key: each for each in load_rules(self.directory)}
            known = rules[rule.key]
            marked = replace(known, erasing=True, erased=known.erased or done, url="" if done else known.url)
            if marked != known:
                self._write({**rules, rule.key: marked}.values())
                reach("erasure noted")
            return marked

    def _locked(self) -> Lock:
        return Lock(self.directory / "withdrawn.lock", "withdraw", brief=True)

    def _write(self, rules: Iterable[Withdrawal]) -> None:
        atomic_write(self.directory / FILE, msgspec.json.encode({"rules": list(rules)}) + b"\n", mode=0o600)
