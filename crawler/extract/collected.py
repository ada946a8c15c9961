"""Collects the links and directives of a page, and decides which of them are used.

The parser (`links.py`), the scanner (`link_scanner.py`) or the plain scan (`scan.py`) fills a `Collected`:
first with the links of the header, then element by element, in document order.
"""

import msgspec

from crawler.extract.directives import page_directives
from crawler.extract.headers import link_headers, refresh
from crawler.extract.link_attributes import FOLLOWED_RELATIONS
from crawler.records import META_NOARCHIVE, META_NOINDEX, Extracted
from crawler.urls.canonical import resolve
from crawler.urls.page_urls import base_url

TITLE_CHARACTERS_MAX = 1000
# Limits of the data that is kept for `consent/`. `consent/` reads 64 statements about the use of a page, 8
# licences, and 8,192 characters of each. One more than each limit is kept, so that `consent/` notices if the
# page has more.
STATEMENTS_KEPT, LICENSES_KEPT, STATEMENT_CHARACTERS = 65, 9, 8193
_LICENSE_TYPE = "application/rsl+xml"
BASES_MAX = 16  # maximum number of <base> elements examined per page
# Common relations and names that are neither links nor directives; they are skipped quickly.
_COMMON_OTHERS = frozenset(
    [
        "stylesheet",
        "icon",
        "shortcut icon",
        "apple-touch-icon",
        "preload",
        "preconnect",
        "dns-prefetch",
        "manifest",
    ]
    + ["search", "index", "author", "copyright", "help", "home", "top", "up", "license"]
    + ["viewport", "description", "generator", "keywords", "theme-color"]
)


class Context(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """Everything about a page except its bytes.

    `url` is the URL from which the page was fetched, `charset` is the charset parameter of Content-Type (""
    if there is none), and `token` is our product token. `link_values`, `refresh_value` and `robots_tags` are
    the values of the header fields Link, Refresh and X-Robots-Tag. With `obey_robots` off, all links are
    extracted, whatever the page's directives say; the directives are still reported. `obey_nofollow` applies
    to `rel=nofollow` only. If `want_requisites` is set, the URLs needed to display the page are collected;
    `want_anchors` does the same for the texts of links, and `want_markup` for the markup that the audit
    checks. `xhtml` is set if the media type of the page is application/xhtml+xml.
    """

    url: str
    charset: str = ""
    token: str = ""
    link_values: tuple[str, ...] = ()
    refresh_value: str = ""
    robots_tags: tuple[str, ...] = ()
    obey_robots: bool = True
    obey_nofollow: bool = True
    want_requisites: bool = False
    xhtml: bool = False
    want_anchors: bool = False
    want_markup: bool = False

    @property
    def needs_tree(self) -> bool:
        """Return whether the caller wants something that only the parser can find."""
        return self.want_anchors or self.want_markup


class Collected:
    """The links, directives and title found on one page."""

    __slots__ = (
        "_page",
        "_token",
        "base",
        "bases",
        "canonical",
        "hrefs",
        "licenses",
        "refresh",
        "requisites",
        "robots_metas",
        "skips_nofollow",
        "statements",
    )

    def __init__(self, page: Context) -> None:
        self._page = page
        self._token = page.token.lower()
        self.skips_nofollow = page.obey_robots and page.obey_nofollow
        self.base = ""
        self.bases = 0  # number of <base> elements examined
        self.hrefs: dict[str, str | None] = {}  # raw URL -> text of its first anchor, if wanted
        self.requisites: list[str] = []
        self.refresh = ""
        self.canonical = ""
        self.robots_metas: list[str] = []
        # In order and without repeats: (name, content) of the meta elements about the use of the page, and
        # the raw URLs of RSL documents
        self.statements: dict[tuple[str, str], None] = {}
        self.licenses: dict[str, None] = {}
        for raw_url, relations in link_headers(page.link_values):
            self.add_relation(raw_url, relations)

    def add(self, raw_url: str | None) -> None:
        """Add a link, without its fragment."""
        if raw_url is not None:
            self.hrefs.setdefault(raw_url.partition("#")[0], None)

    def add_relation(self, raw_url: str, relations: frozenset[str]) -> None:
        """Add a link from a `<link>` element or from the header. Its relation types are in lower case."""
        if relations.isdisjoint(FOLLOWED_RELATIONS) or (self.skips_nofollow and "nofollow" in relations):
            return
        self.add(raw_url)
        if "canonical" in relations and not self.canonical:
            self.canonical = raw_url

    def take_link(self, relations: str | None, href: str | None, media_type: str | None) -> None:
        """Process a `<link>` element, given the values of its attributes."""
        if not (relations and href):
            return
        if media_type is not None and len(media_type) >= len(_LICENSE_TYPE):
            announces = media_type.strip().lower() == _LICENSE_TYPE and "license" in relations.lower().split()
            if announces and len(self.licenses) < LICENSES_KEPT:
                self.licenses[href[:STATEMENT_CHARACTERS]] = None
        if relations not in _COMMON_OTHERS:
            self.add_relation(href, frozenset(relations.lower().split()))

    def take_meta(self, name: str | None, http_equiv: str | None, content: str | None) -> None:
        """Process a `<meta>` element, which may hold a refresh, or directives for this crawler.

        Only the first refresh that leads to another URL is used.
        """
        if name in _COMMON_OTHERS:
            return
        content = content or ""
        if content and http_equiv and http_equiv.lower() == "refresh" and not self.refresh:
            self.refresh = (refresh(content) or (0, ""))[1]
        name = (name or "").strip().lower()
        binds = bool(name) and name in ("robots", self._token)
        if binds:
            self.robots_metas.append(content)
        if (binds or name.startswith("tdm-")) and len(self.statements) < STATEMENTS_KEPT:
            self.statements[name, content[:STATEMENT_CHARACTERS]] = None

    def wants_base(self) -> bool:
        """Return whether another `<base>` needs to be examined."""
        return not self.base and self.bases < BASES_MAX

    def take_base(self, href: str | None) -> None:
        """Process a `<base>` element. If it has no `href`, it is only counted.

        Only the first base that is a valid http or https URL is used.
        """
        if self.wants_base():
            self.bases += 1
            if href is not None:
                self.base = base_url(self._page.url, href)

    def extracted(self, encoding: str, title: str, links_max: int, *, parse_limit: bool = False) -> Extracted:
        """Return an `Extracted` with everything that was collected."""
        page = self._page
        own = said = page_directives((), self.robots_metas, self._token)
        if page.robots_tags:
            said = page_directives(page.robots_tags, self.robots_metas, self._token)
        takes_links = not (said.nofollow and page.obey_robots)
        base = self.base or page.url
        # a header field applies before any base element, so its target is relative to the page (WHATWG HTML)
        field = refresh(page.refresh_value)
        if field is not None and field[1]:
            self.refresh = resolve(page.url, field[1], encoding=encoding) or self.refresh
        if base == page.url:
            self.hrefs.pop("", None)  # a link to the page itself
        hrefs = list(self.hrefs)[:links_max] if takes_links else []
        return Extracted(
            base=base,
            encoding=encoding,
            hrefs=hrefs,
            requisites=self.requisites if takes_links else [],
            refresh=self.refresh if takes_links else "",
            canonical=self.canonical,
            title=title,
            nofollow=said.nofollow,
            noindex=said.noindex,
            noarchive=said.noarchive,
            parse_limit=parse_limit,
            anchors=[self.hrefs[href] or "" for href in hrefs] if page.want_anchors else [],
            metas=own.noindex * META_NOINDEX | own.noarchive * META_NOARCHIVE,
            statements=list(self.statements),
            licenses=list(self.licenses),
        )


def one_line(title: str) -> str:
    """Replace each run of blanks in a title by one space, and cut the title to TITLE_CHARACTERS_MAX characters."""
    return " ".join(title[: 4 * TITLE_CHARACTERS_MAX].split())[:TITLE_CHARACTERS_MAX]
