# cython: annotation_typing=False
"""The URL filter: scope, traps, extensions and kinds, exclude and include.

A URL is either accepted or rejected by exactly one rule, the first rule in the order of RULES that applies.
Rule names are stable: they are keys of the report, and `crawler why` prints them.

The flags of a link decide which rules apply to it (`-`: the rule does not apply):

    rule               page link   SEED   SITEMAP   REQUISITE           EXTERNAL
    withdrawn              x         x       x         x                   x
    requisite                                       unless switched on
    scope                  x         -       -         -                   -
    in_scope                                                               x
    extension, kind        x         -       -         x                   -
    exclude                x         x       x         x                   x
    include                x         -       -         -                   -
    port, path_segments... x         x       x         x                   x

`include` does not apply to seeds, which the user asked for, nor to sitemaps, which only lead to pages. A
sitemap may be on another host if the robots.txt of a host in scope lists it. Requisites may be on any host.
External links are links out of the scope. Only the status of an external link is of interest, so its kind of
file does not matter.

Patterns are Python regular expressions, which may match anywhere in the request form. The patterns come from
the user, who should avoid nested repetitions such as `(a+)+`. Only the length of a URL limits the time that a
pattern with nested repetitions takes.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import cython

from crawler.config import FilterConfig, TrapsConfig
from crawler.errors import ConfigError
from crawler.records import LinkFlag
from crawler.urlfilter import traps
from crawler.urlfilter.rule_names import (
    EXCLUDE,
    EXTENSION,
    HOOK,
    IN_SCOPE,
    INCLUDE,
    KIND,
    PORT,
    REQUISITE,
    SCOPE,
    WITHDRAWN,
)
from crawler.urls.canonical import directory, hostname
from crawler.urls.file_kinds import Kinds
from crawler.urls.ports import BAD_PORTS, port_of
from crawler.urls.suffixes import registrable_domain
from crawler.urls.surt_prefix import surt_of, surt_prefix
from crawler.user_patterns import compiled

COMPILED: bool = cython.compiled

_REQUISITE = LinkFlag.REQUISITE
_EXTERNAL = LinkFlag.EXTERNAL
_ANY_HOST = LinkFlag.SEED | LinkFlag.SITEMAP | LinkFlag.REQUISITE | _EXTERNAL
_ANY_EXTENSION = LinkFlag.SEED | LinkFlag.SITEMAP | _EXTERNAL
# Limits on the directories whose verdict is remembered: their number, and their length in characters. The
# verdicts take at most about 4 MB.
_DIRECTORIES_MAX = 1 << 13
_DIRECTORY_LENGTH_MAX = 400

_SHOWN_ENTRIES = 5  # number of entries of a scope that are shown to users
_UNKNOWN = "unknown"  # not a rule: it marks a directory that has not been judged yet

# The kinds of scopes, from narrow to wide. The stored state of a scope can be restored into a scope of the
# same or a wider kind.
SCOPES = ("prefix", "host", "domain", "any")
PAGE = "page"  # the scope of a seed that consists of its page only; a crawl cannot have this kind


class Scope:
    """The part of the web defined by the seeds and their redirect targets (`urlfilter/README.md`, "Scope").

    A seed may have a kind of its own (`kind_of`), for example `page`, which includes only the seed itself.
    URLs with one of the SURT prefixes are in scope, too.

    The scope stores one short entry per host, domain or directory; a scope of the kind `any` needs no
    entries. The scope of the seeds that the user gave (`give`), without their redirects, is stored
    separately, because headers with credentials are sent only to URLs in that scope. If the kind is `any`,
    such headers are sent only to the hosts of the seeds.

    Raises:
        ConfigError: `kind` is not in SCOPES, or a prefix is not a SURT prefix.
    """

    def __init__(
        self,
        kind: str = "host",
        urls: Iterable[str] = (),
        *,
        kind_of: Callable[[str], str | None] | None = None,
        surts: Iterable[str] = (),
    ) -> None:
        if kind not in (*SCOPES, PAGE):
            raise ConfigError(f"crawl.scope: {kind!r} must be one of {', '.join(SCOPES)}")
        self.kind = kind
        self._kind_of = kind_of
        self._surts = tuple(map(_checked_surt, surts))
        self._entries: set[str] = set()
        # the scope of each seed that has its own kind of scope, instead of the crawl's
        self._others: dict[str, Scope] = {}
        self._given: Scope | None = None
        for url in urls:
            self.add(url)

    def add(self, url: str) -> bool:
        """Widen the scope by a seed or its redirect (a request form); return whether the scope changed."""
        own = self._kind_of(url) if self._kind_of is not None and self.kind != "any" else None
        if own is not None and own != self.kind:
            return self._other(own).add(url)
        if self.kind == "any" or self._has(url):
            return False
        self._entries.add(self._entry(url))
        return True

    def _other(self, kind: str) -> "Scope":
        return self._others.setdefault(kind, Scope(kind))

    def covers(self, url: str) -> bool:
        """Return whether a request form is in scope."""
        return self.spans(url) or self.names(url)

    def spans(self, url: str) -> bool:
        """Return whether the whole directory of a URL is in scope."""
        if self.kind == "any":
            return True
        return (self.kind != PAGE and self._has(url)) or any(
            other.spans(url) for other in self._others.values()
        )

    def names(self, url: str) -> bool:
        """Return whether the scope contains the URL itself: as a seed of kind `page`, or by a SURT prefix."""
        if PAGE in self._others and self._others[PAGE]._has(url):
            return True
        return bool(self._surts) and surt_of(url).startswith(self._surts)

    def _has(self, url: str) -> bool:
        if self.kind == "prefix":
            return self._covers_place(_prefix(url))
        return self._entry(url) in self._entries

    def give(self, url: str) -> bool:
        """Record a seed that the user gave; return whether anything changed."""
        if self._given is None:
            self._given = Scope("host" if self.kind == "any" else self.kind, kind_of=self._kind_of)
        return self._given.add(url)

    def was_given(self, url: str) -> bool:
        """Return whether a request form is in the scope of the seeds that `give` has recorded."""
        return self._given is not None and self._given.covers(url)

    def _entry(self, url: str) -> str:
        if self.kind in ("prefix", PAGE):
            return _prefix(url) if self.kind == "prefix" else url.partition("//")[2]
        name = hostname(url)
        return registrable_domain(name) if self.kind == "domain" else _fold(name)

    def _covers_place(self, place: str) -> bool:
        """Return whether a directory or one of its ancestors is an entry."""
        while place:
            if place in self._entries:
                return True
            place = place[: place.rfind("/", 0, -1) + 1]
        return False

    def state(self) -> dict[str, Any]:
        """Return the state for a restart as plain values: kind, entries by kind of scope, and given seeds."""
        state: dict[str, Any] = {"kind": self.kind, "entries": sorted(self._entries)}
        if self._others:
            state["others"] = {kind: sorted(other._entries) for kind, other in self._others.items()}
        return state if self._given is None else state | {"given": self._given.urls()}

    def summary(self) -> str:
        """Return a text that tells users the kind of the scope and its first entries."""
        entries = sorted(self._entries)
        more = f" and {len(entries) - _SHOWN_ENTRIES:,} more" if len(entries) > _SHOWN_ENTRIES else ""
        own = f"{self.kind} {', '.join(entries[:_SHOWN_ENTRIES])}{more}"
        others = [other.summary() for other in self._others.values()]
        surts = [f"SURT {', '.join(self._surts[:_SHOWN_ENTRIES])}"] if self._surts else []
        return "; ".join(([own] if entries or not (others or surts) else []) + others + surts)

    def urls(self) -> list[str]:
        """Return URLs with which another scope of the same kinds includes all of this scope."""
        own = ["http://" + entry if "/" in entry else f"http://{entry}/" for entry in sorted(self._entries)]
        return own + [url for other in self._others.values() for url in other.urls()]

    @classmethod
    def from_state(
        cls,
        kind: str,
        state: Mapping[str, Any],
        *,
        kind_of: Callable[[str], str | None] | None = None,
        surts: Iterable[str] = (),
    ) -> "Scope":
        """Restore the scope of an earlier run as a scope of `kind`, which must not be narrower than the earlier kind.

        Raises:
            ConfigError: `kind` is unknown, or narrower than the kind of the earlier run.
        """
        scope = cls(kind, surts=surts)
        if SCOPES.index(kind) < SCOPES.index(state["kind"]):
            began = state["kind"]
            raise ConfigError(f"crawl.scope: this crawl started with scope {began}; it cannot become {kind}")
        for entry in state["entries"]:
            scope.add("http://" + entry if "/" in entry else f"http://{entry}/")
        for other, entries in state.get("others", {}).items():
            scope._other(other)._entries.update(entries)
        scope._kind_of = kind_of
        for url in state.get("given", ()):
            scope.give(url)
        return scope

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Scope({self.kind}, {len(self)} entries)"


def _checked_surt(text: str) -> str:
    if found := surt_prefix(text):
        return found
    raise ConfigError(f"crawl.surts: {text!r} is not a SURT prefix such as http://(org,example,)/docs/")


def _fold(name: str) -> str:
    """Return the host name without a leading `www.`, unless that leaves a single label."""
    return name[4:] if name.startswith("www.") and "." in name[4:] else name


def _prefix(url: str) -> str:
    """Return the host, port and directory of a request form, without the scheme, such as "h.example:8080/a/"."""
    return directory(url).partition("//")[2]


def _path_end(url: str) -> str:
    """Return the last segment of the path, in lower case."""
    return url.partition("?")[0].rpartition("/")[2].lower()


class UrlFilter:
    """Decides whether a URL in its request form is accepted.

    Args:
        scope: the scope, which `widen` can widen; this changes `revision`.
        requisites: whether links with the flag REQUISITE are wanted.
        hook: the user's filter, called last; False rejects. It is not called for seeds and sitemaps.
        withdrawn: returns whether the operator has withdrawn a URL. Call `renew` after its answers change.

    Raises:
        ConfigError: a pattern is not a regular expression.
    """

    def __init__(
        self,
        scope: Scope,
        config: FilterConfig = FilterConfig(),  # noqa: B008 (frozen)
        trap_limits: TrapsConfig = TrapsConfig(),  # noqa: B008 (frozen)
        *,
        allow_ports: Iterable[int] = (),
        requisites: bool = False,
        hook: Callable[[str], bool] | None = None,
        withdrawn: Callable[[str], bool] = lambda url: False,
    ) -> None:
        self._withdrawn = withdrawn
        self.scope = scope
        self._bad_ports = BAD_PORTS.difference(allow_ports, (0,))  # 0 stands for a URL without a port
        self.revision = 0
        self._requisites = requisites
        self._hook = hook
        self._limits = trap_limits.path_segments_max, trap_limits.repeated_segments_max
        self._include = _patterns("filter.include", config.include)
        self._exclude = _patterns("filter.exclude", config.exclude)
        self._extensions = tuple("." + name.lower().lstrip(".") for name in config.exclude_extensions)
        kinds = Kinds(config.accept, config.reject)
        self._kinds = kinds if kinds else None
        self._patterned = bool(
            self._include or self._exclude or self._extensions or self._kinds or hook is not None
        )
        self._anywhere = scope.kind == "any"
        self._directories: dict[str, str | None] = {}

    def widen(self, url: str) -> bool:
        """Add a seed, or its redirect target, to the scope; return whether the scope changed."""
        widened = self.scope.add(url)
        if widened:
            self.revision += 1
            self._directories.clear()
        return widened

    def renew(self) -> None:
        """Increase `revision`, because the set of withdrawn URLs has changed; callers discard stored verdicts."""
        self.revision += 1

    def verdict(self, url: str, flags: int = 0) -> str:
        """Return the name of the rule (a key of RULES) that rejects a request form, or "" if it is accepted."""
        if self._withdrawn(url):
            return WITHDRAWN
        if flags & _REQUISITE and not self._requisites:
            return REQUISITE
        if flags & _EXTERNAL and self.scope.covers(url):
            return IN_SCOPE
        if flags & _ANY_HOST:
            return self._pattern_verdict(url, flags) or self._port(url) or traps.trap(url, *self._limits)
        place = directory(url)
        rule = self._directories.get(place, _UNKNOWN)
        if rule is _UNKNOWN and not self._anywhere:
            rule = self._directory_verdict(place)
        if rule == SCOPE:
            if not self.scope.names(url):
                return SCOPE
            rule = self._port(url) or traps.directory_trap(place, *self._limits)
        if self._patterned and (found := self._pattern_verdict(url, flags)):
            return found
        if rule is _UNKNOWN:
            rule = self._directory_verdict(place)
        return traps.trap(url, *self._limits) if rule is None else rule

    def detail(self, url: str, rule: str) -> str:
        """Return what a user should know about the setting that rejected a request form.

        For example, this is the pattern that matched, or the scope. The result is "" if there is nothing to
        add to the name of the rule.
        """
        if rule == SCOPE:
            return self.scope.summary()
        if rule == EXTENSION:
            return next((name for name in self._extensions if _path_end(url).endswith(name)), "")
        if rule == PORT:
            return f"network.allow_ports=[{port_of(url)}] opens it"
        if rule == EXCLUDE:
            return next((pattern.pattern for pattern in self._exclude if pattern.search(url)), "")
        return ", ".join(pattern.pattern for pattern in self._include) if rule == INCLUDE else ""

    def _directory_verdict(self, place: str) -> str | None:
        """Return the verdict on all URLs of a directory, or None if the verdict depends on the last segment.

        The verdict is SCOPE, PORT or the result of `directory_trap`. The verdict does not consider patterns.
        """
        rule: str | None = SCOPE
        if self.scope.spans(place):
            rule = self._port(place) or traps.directory_trap(place, *self._limits)
        if len(self._directories) >= _DIRECTORIES_MAX:
            self._directories.clear()
        if len(place) <= _DIRECTORY_LENGTH_MAX:
            self._directories[place] = rule
        return rule

    def _port(self, url: str) -> str:
        """Return PORT if the port of a request form, or of its directory, is refused."""
        return PORT if port_of(url) in self._bad_ports else ""

    def _pattern_verdict(self, url: str, flags: int) -> str:
        if self._extensions and not flags & _ANY_EXTENSION and _path_end(url).endswith(self._extensions):
            return EXTENSION
        if self._kinds is not None and not flags & _ANY_EXTENSION and not self._kinds.may_ask(url):
            return KIND
        if self._exclude and _matches(self._exclude, url):
            return EXCLUDE
        if self._include and not flags & _ANY_HOST and not _matches(self._include, url):
            return INCLUDE
        if self._hook is not None and not flags & _ANY_HOST and not self._hook(url):
            return HOOK
        return ""

    def __repr__(self) -> str:
        return f"UrlFilter({self.scope!r}, revision {self.revision})"


def _matches(patterns: Sequence[re.Pattern[str]], url: str) -> bool:
    if len(patterns) == 1:
        return patterns[0].search(url) is not None
    return any([pattern.search(url) for pattern in patterns])  # a generator would take three times as long


def _patterns(path: str, texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Compile the patterns.

    Raises:
        ConfigError: a pattern does not compile; the message gives the first one and the reason.
    """
    try:
        return tuple(compiled(text) for text in texts)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
