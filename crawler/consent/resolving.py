"""Combines everything that a site says about a page into one answer for each use, and names the source that decided.

No source has precedence, except inside TDMRep, where the page overrides the file. For each use, the most
restrictive answer counts. If several sources gave the most restrictive answer, the source that comes first in
`SOURCES` is named.
"""

from collections.abc import Iterable

import msgspec

from crawler.consent.paths import address_of, by_path
from crawler.consent.rsl import RslDocument, terms_for
from crawler.consent.statements import (
    ALLOW,
    NOTHING_SAID,
    UNKNOWN,
    USES,
    Preference,
    Preferences,
    Statement,
    strictest,
)
from crawler.consent.tdmrep import TdmFile, TdmReservation, read_tdm_page, reservation_for
from crawler.consent.text_statements import (
    read_page_names,
    read_signal_header,
    read_usage_header,
    signal_meaning,
    usage_meaning,
)
from crawler.robots.rules import RobotsRules

# If several sources gave the answer, the first in this order is named. Sources of the page come before those
# of its host.
SOURCES = (
    "content-usage-header",
    "content-signal-header",
    "page-names",
    "tdmrep",
    "content-usage-robots",
    "content-signal-robots",
    "rsl",
)
_NO_TDM_FILE = TdmFile()


class UseDecision(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The answer about one use, and the source in `SOURCES` that decided ("" if the answer is unknown)."""

    preference: Preference = UNKNOWN
    source: str = ""


class Consent(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The resolved answers about one page."""

    search: UseDecision = UseDecision()
    ai_input: UseDecision = UseDecision()
    train_ai: UseDecision = UseDecision()
    tdm: UseDecision = UseDecision()


_ALL_UNKNOWN = Consent()


class HostStatements(msgspec.Struct, frozen=True):
    """The statements of a page's host at the time of the fetch: robots.txt, tdmrep.json, the page's licence documents."""

    robots: RobotsRules
    tdm_file: TdmFile = _NO_TDM_FILE
    licenses: tuple[RslDocument, ...] = ()


class PageStatements(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The raw text and the meaning of the statements about one page, by source."""

    usage_header: Statement
    signal_header: Statement
    names: Statement
    tdm: TdmReservation
    usage_robots: Statement
    signal_robots: Statement
    rsl: Statement

    def consent(self, unread: Iterable[str] = ()) -> Consent:
        """Return the resolved answers. No use in `unread` is allowed: a statement about it could not be read."""
        said = (getattr(self, field).preferences for field in self.__struct_fields__)
        return _without_permissions(resolve(zip(SOURCES, said, strict=True)), frozenset(unread))


def resolve(statements: Iterable[tuple[str, Preferences]]) -> Consent:
    """Return the most restrictive answer about each use, and the first source that gave this answer."""
    every = [(source, said) for source, said in statements if said is not NOTHING_SAID]
    if not every:
        return _ALL_UNKNOWN
    return Consent(**{use: _decide([(source, getattr(said, use)) for source, said in every]) for use in USES})


def _without_permissions(consent: Consent, unread: frozenset[str]) -> Consent:
    """Return the answers, but replace "y" by "unknown" for uses that an unread statement might have refused."""
    if not unread:
        return consent
    answers = ((use, getattr(consent, use)) for use in USES)
    return Consent(
        *(UseDecision() if use in unread and each.preference is ALLOW else each for use, each in answers)
    )


def statements_about(
    url: str,
    host: HostStatements,
    headers: Iterable[tuple[bytes, bytes]],
    token: str,
    *,
    meta: Iterable[tuple[str, str]] = (),
) -> PageStatements:
    """Return what a host, at the time of the fetch, and one answer say about the page `url`.

    `headers` are the fields of the answer, in order. `meta` has (name, content) of the page's meta elements.
    """
    fields: dict[str, list[bytes]] = {}
    for name, value in headers:
        fields.setdefault(name.decode("latin-1").lower(), []).append(value)
    metas: dict[str, list[str]] = {}
    for key, content in meta:
        metas.setdefault(key.strip().lower(), []).append(content)
    _, target = address_of(url)
    robots = host.robots.parsed
    # If robots.txt forbids fetching a page, the other lines of robots.txt say nothing about the use of that
    # page (draft-ietf-aipref-attach).
    usage_lines = robots.usage if host.robots.allowed(target) else ()
    return PageStatements(
        read_usage_header(fields.get("content-usage", ())),
        read_signal_header(fields.get("content-signal", ())),
        _page_names(fields, metas, token),
        reservation_for(host.tdm_file, _tdm_page(fields, metas), target),
        by_path(usage_lines, target, usage_meaning),
        by_path(robots.signals, target, signal_meaning),
        terms_for(host.licenses, url),
    )


def _page_names(fields: dict[str, list[bytes]], metas: dict[str, list[str]], token: str) -> Statement:
    tags = [value.decode("latin-1") for value in fields.get("x-robots-tag", ())]
    own = [content for name in ("robots", token.lower()) for content in metas.get(name, ())]
    image = fields.get("content-type", [b""])[0].strip().lower().startswith(b"image/")
    return read_page_names(tags, own, token, image=image)


def _tdm_page(fields: dict[str, list[bytes]], metas: dict[str, list[str]]) -> TdmReservation:
    values = (
        fields.get(name, []) + [content.encode("utf-8", "replace") for content in metas.get(name, ())]
        for name in ("tdm-reservation", "tdm-policy")
    )
    return read_tdm_page(*values)


def _decide(answers: list[tuple[str, Preference]]) -> UseDecision:
    answer = strictest(preference for _, preference in answers)
    if answer is UNKNOWN:
        return UseDecision()
    return UseDecision(answer, next(source for source, preference in answers if preference is answer))
