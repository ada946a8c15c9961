"""A page as the user's code receives it: URL, answer and decoded content.

The content is decoded and parsed only once, at its first use.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar, overload
from urllib.parse import urlencode

import msgspec
from multidict import CIMultiDict, CIMultiDictProxy
from selectolax.lexbor import LexborHTMLParser, LexborNode

from crawler.api.request import Callback, Request
from crawler.errors import UsageError
from crawler.extract.decode import to_utf8
from crawler.shadow_roots import open_shadow_roots
from crawler.urls.canonical import resolve
from crawler.urls.page_urls import base_url
from crawler.wording import to_install

if TYPE_CHECKING:
    import parsel

T = TypeVar("T")


class Element:
    """An element of a page.

    >>> from crawler import Page
    >>> item = Page.of("http://x/", "<li class=a><a href=/1> One </a></li>").css("li")[0]
    >>> item.text, item.css("a").attr("href"), item["class"]
    ('One', '/1', 'a')
    """

    __slots__ = ("_node",)

    def __init__(self, node: LexborNode) -> None:
        self._node = node

    @property
    def text(self) -> str:
        """The text of the element and its descendants, without white space at both ends.

        >>> Page.of("http://x/", "<p> Green <b>tea</b> ").css("p")[0].text
        'Green tea'
        """
        return str(self._node.text()).strip()

    @property
    def html(self) -> str:
        """The source of the element, as the parser understood it.

        >>> Page.of("http://x/", "<P>Green <b>tea</P>").css("b")[0].html
        '<b>tea</b>'
        """
        return self._node.html or ""

    @property
    def tag(self) -> str:
        """The name of the element in lower case.

        >>> Page.of("http://x/", "<H1>Tea").css("h1")[0].tag
        'h1'
        """
        return str(self._node.tag)

    def attr(self, name: str, default: str = "") -> str:
        """Return the value of an attribute, "" if it has no value, or `default` if the element lacks it.

        >>> link = Page.of("http://x/", "<a href=/1 hidden>One</a>").css("a")[0]
        >>> link.attr("href"), link.attr("hidden"), link.attr("title", "none")
        ('/1', '', 'none')
        """
        attributes = self._node.attributes
        return (attributes[name] or "") if name in attributes else default

    def __getitem__(self, name: str) -> str:
        if name not in self._node.attributes:
            raise KeyError(name)
        return self.attr(name)

    def css(self, query: str) -> "Elements":
        """Return the descendants that match a CSS selector; raise ValueError if the selector is invalid.

        >>> shelf = Page.of("http://x/", "<ul><li>Green<li>Black</ul>").css("ul")[0]
        >>> shelf.css("li").texts
        ['Green', 'Black']
        """
        return _select(self._node, query)

    def __repr__(self) -> str:
        return f"<{self.tag}> {self.text[:60]!r}"


class Elements(tuple[Element, ...]):
    """The elements that match a selector, in page order.

    >>> from crawler import Page
    >>> links = Page.of("http://x/", "<a href=/1>One</a><a href=/2>Two</a>").css("a")
    >>> links.text, links.texts, links.attrs("href"), len(links)
    ('One', ['One', 'Two'], ['/1', '/2'], 2)
    """

    __slots__ = ()

    @property
    def text(self) -> str:
        """The text of the first element; "" if there is none.

        >>> page = Page.of("http://x/", "<li>Green<li>Black")
        >>> page.css("li").text, page.css("h1").text
        ('Green', '')
        """
        return self[0].text if self else ""

    @property
    def texts(self) -> list[str]:
        """The text of each element.

        >>> Page.of("http://x/", "<li>Green<li>Black").css("li").texts
        ['Green', 'Black']
        """
        return [element.text for element in self]

    def attr(self, name: str, default: str = "") -> str:
        """Return an attribute of the first element; `default` if there is none.

        >>> page = Page.of("http://x/", "<a href=/1>One</a><a href=/2>Two</a>")
        >>> page.css("a").attr("href"), page.css("img").attr("src", "no image")
        ('/1', 'no image')
        """
        return self[0].attr(name, default) if self else default

    def attrs(self, name: str) -> list[str]:
        """Return an attribute of each element that has it.

        >>> Page.of("http://x/", "<a href=/1>One</a><a>Two</a>").css("a").attrs("href")
        ['/1']
        """
        return [element[name] for element in self if name in element._node.attributes]


def _select(node: Any, query: str) -> Elements:
    try:
        return Elements(Element(found) for found in node.css(query))
    except Exception as error:  # the parser raises its own exception class
        raise ValueError(f"{query!r} is not a CSS selector{_as_written_here(query)}") from error


_PSEUDO_ELEMENT = re.compile(r"(.*?)\s*::(?:(text)|attr\(\s*['\"]?([^)'\"]*?)['\"]?\s*\))\s*")


def _as_written_here(query: str) -> str:
    """Return advice on what to write instead of one of Scrapy's pseudo-elements.

    Return "" if `query` contains no pseudo-element.
    """
    found = _PSEUDO_ELEMENT.fullmatch(query)
    if found is None:
        return ""
    selected = f"css({found[1] or '*'!r})"
    if found[2]:
        return f"; write {selected}.text, or {selected}.texts for all"
    return f"; write {selected}.attr({found[3]!r}), or {selected}.attrs({found[3]!r}) for all"


def _fields_of(form: Element) -> dict[str, str]:
    """Return the names and values that a browser would send with an untouched form (HTML, 4.10.21.4)."""
    fields: dict[str, str] = {}
    for control in form.css("input[name], select[name], textarea[name], button[name]"):
        name, kind = control["name"], control.attr("type").lower()
        if "disabled" in control._node.attributes or not name:
            continue
        if control.tag == "select":
            options = control.css("option[selected]") or control.css("option")
            fields[name] = options.attr("value", options.text)
        elif control.tag == "textarea":
            fields[name] = control.text
        elif kind in ("button", "reset", "image", "file"):
            continue
        elif control.tag == "button" or kind == "submit":
            if fields.setdefault(_PRESSED, name) == name:
                fields[name] = control.attr("value")
        elif kind not in ("checkbox", "radio") or "checked" in control._node.attributes:
            fields[name] = control.attr("value", "on" if kind == "checkbox" else "")
    fields.pop(_PRESSED, None)
    return fields


# this key holds the name of the form's first button, because a browser would press that button
_PRESSED = "\0"


class Page(msgspec.Struct, frozen=True, dict=True):
    """A fetched page, which is already stored durably.

    `url` is the URL in the form in which it was requested, and `content` is the body without content coding.
    `fetched_at` is the time of the fetch, in seconds since 1970. `links` are the raw URLs of the page's links
    that the argument `follow`, or the link extractor, selects; `css("a").attrs("href")` returns those of all links.
    `meta` is the `meta` of its `Request`. If the crawler rendered the page in a browser (`render.when`),
    `rendered` is true and `content` is the DOM in UTF-8. If the answer is not a page but a file of more than
    `fetch.body_bytes_max`, `content` is b"", and the file is only in the archive and in a mirror. `consent` is
    the consent receipt of the page. The receipt says what the site allowed when the page was fetched: "y", "n"
    or "unknown" for each of `search`, `ai_input`, `train_ai` and `tdm`. The receipt also names the source that
    decided each answer, and contains the statements of the site. `text` and `tree` are computed once, when
    they are first used.

        >>> from crawler import Page
        >>> page = Page.of("http://x/shop/", "<title>Shop</title><h1>Tea</h1><a href=green>Green</a>")
        >>> page.css("h1").text, page.url_join(page.css("a").attr("href")), page.ok
        ('Tea', 'http://x/shop/green', True)
    """

    url: str
    status: int
    outcome: str
    depth: int
    fetched_at: float
    content_type: str
    raw_headers: tuple[tuple[bytes, bytes], ...]
    content: bytes
    links: tuple[str, ...] = ()
    title: str = ""
    charset: str = ""
    meta: Mapping[str, Any] = {}
    rendered: bool = False
    consent: Mapping[str, Any] = {}

    @classmethod
    def of(cls, url: str, content: str | bytes, content_type: str = "text/html", status: int = 200) -> "Page":
        """Make a page from given content, to try callbacks on it.

        >>> from crawler import Page
        >>> Page.of("http://x/", '{"price": 3}', "application/json").json()
        {'price': 3}
        """
        charset = "utf-8" if isinstance(content, str) else ""
        body = content.encode() if isinstance(content, str) else content
        headers = ((b"Content-Type", content_type.encode("latin-1")),)
        return cls(url, status, "fetched", 0, 0.0, content_type, headers, body, charset=charset)

    @property
    def ok(self) -> bool:
        """True if the status is 2xx.

        >>> Page.of("http://x/", "", status=404).ok
        False
        """
        return 200 <= self.status < 300

    @cached_property
    def headers(self) -> CIMultiDictProxy[str]:
        """The headers of the answer.

        Names are case-insensitive, and `getall` returns all values of a repeated header.

        >>> raw = ((b"ETag", b"7"), (b"Link", b"</a>"), (b"Link", b"</b>"))
        >>> page = Page("http://x/", 200, "fetched", 0, 0.0, "text/html", raw, b"")
        >>> page.headers["etag"], page.headers.getall("link"), page.headers.get("age")
        ('7', ['</a>', '</b>'], None)
        """
        pairs = ((name.decode("latin-1"), value.decode("latin-1")) for name, value in self.raw_headers)
        return CIMultiDictProxy(CIMultiDict(pairs))

    @cached_property
    def _utf8(self) -> tuple[bytes, str]:
        return to_utf8(self.content, self.charset)

    @property
    def encoding(self) -> str:
        """The WHATWG name of the text's encoding, which a byte order mark, the header or the page itself declares.

        >>> Page.of("http://x/", b"<meta charset=latin1>").encoding
        'windows-1252'
        """
        return self._utf8[1]

    @cached_property
    def text(self) -> str:
        """The content as text; bytes that are invalid in the encoding become U+FFFD.

        >>> Page.of("http://x/", b"<meta charset=latin1>caf\\xe9").text
        '<meta charset=latin1>caf\xe9'
        """
        return self._utf8[0].decode("utf-8", "replace")

    @cached_property
    def tree(self) -> LexborHTMLParser:
        """The page as a tree of selectolax. In this tree, shadow roots are elements named `shadow-root`.

        >>> Page.of("http://x/", "<h1>Tea").tree.css_first("h1").tag
        'h1'
        """
        return LexborHTMLParser(open_shadow_roots(self.text.encode("utf-8", "replace")))

    def css(self, query: str) -> Elements:
        """Return the elements that match a CSS selector; raise ValueError if the selector is invalid.

        >>> Page.of("http://x/", "<p class=price>3.50").css("p.price").text
        '3.50'
        """
        return _select(self.tree, query)

    @cached_property
    def selector(self) -> "parsel.Selector":
        """The page as a selector of parsel, Scrapy's library; needs the extra `xpath`.

        >>> Page.of("http://x/", "<a href=/1>One</a>").selector.css("a::attr(href)").get()
        '/1'
        """
        try:
            import parsel
        except ImportError:
            raise UsageError(f"XPath needs parsel: {to_install('xpath')}") from None
        kind = "xml" if self.content_type.endswith(("/xml", "+xml")) else "html"
        return parsel.Selector(self.text, type=kind, base_url=self.url)

    def xpath(self, query: str, **variables: Any) -> "parsel.SelectorList[parsel.Selector]":
        """Return the nodes that match an XPath expression, as parsel does; raise ValueError if it is invalid.

        >>> Page.of("http://x/", "<h1>Tea</h1>").xpath("//h1/text()").get()
        'Tea'
        """
        return self.selector.xpath(query, **variables)

    @overload
    def json(self) -> Any: ...
    @overload
    def json(self, kind: type[T]) -> T: ...

    def json(self, kind: Any = Any) -> Any:
        """Return the content as JSON.

        If a `kind` (dataclass, msgspec struct) is given, check and convert the content.

        >>> page = Page.of("http://x/", '{"price": 3}', "application/json")
        >>> page.json()["price"], page.json(dict[str, int])
        (3, {'price': 3})

        Raises:
            ValueError: the content is not JSON, or not of that kind (msgspec.DecodeError, ValidationError).
        """
        return msgspec.json.decode(self._utf8[0], type=kind)

    @cached_property
    def base(self) -> str:
        """The URL against which relative URLs are resolved: the URL in the page's `<base>`, or else the page's own URL.

        >>> Page.of("http://x/shop/1", "<base href=/tea/>").base
        'http://x/tea/'
        """
        bases = (base_url(self.url, href) for href in self.css("base[href]").attrs("href"))
        return next(filter(None, bases), self.url)

    def url_join(self, raw_url: str) -> str:
        """Return a URL of the page in absolute, canonical form; raise ValueError if it is not an http(s) URL.

        >>> Page.of("http://x/shop/1", "").url_join("../about#top")
        'http://x/about'
        """
        joined = resolve(self.base, raw_url, encoding=self.encoding)
        if joined is None:
            raise ValueError(f"{self.url}: {raw_url!r} is not an http(s) URL")
        return joined

    def submit(
        self,
        fields: Mapping[str, str],
        callback: Callback | None = None,
        *,
        css: str = "form",
        meta: Mapping[str, Any] = {},
        jar: str = "",
    ) -> Request:
        """Return a request that submits a form of the page with `fields`; other fields keep the values in the form.

        With `jar`, the cookies of that jar are sent; pass the jar with which this page was requested. Of
        the forms that match `css`, the one that has the most of `fields` is used. Raise ValueError if no form
        matches. The values of the form's password fields are not archived.

        >>> from crawler import Page
        >>> page = Page.of("http://x/in", "<form method=post><input name=token value=7><input name=user></form>")
        >>> request = page.submit({"user": "me"})
        >>> request.method, request.url, request.body
        ('POST', 'http://x/in', {'token': '7', 'user': 'me'})
        """
        forms = [(form, _fields_of(form)) for form in self.css(css)]
        if not forms:
            raise ValueError(f"{self.url}: {css!r} matches no form")
        form, found = max(forms, key=lambda each: len(fields.keys() & each[1].keys()))
        sent = found | dict(fields)
        target = self.url_join(form.attr("action") or self.url)
        if form.attr("method").strip().lower() == "post":
            secrets = tuple(form.css("input[type=password][name]").attrs("name"))
            return Request(target, callback, meta, body=sent, jar=jar, secrets=secrets)
        return Request(f"{target.partition('?')[0]}?{urlencode(sent)}", callback, meta, jar=jar)

    def urls(self, css: str = "a[href]", attribute: str = "href") -> Iterator[str]:
        """Yield the absolute URLs in an attribute of the matching elements; skip those that are not http(s) URLs.

        >>> page = Page.of("http://x/shop/", "<a href=1>One</a><a href=mailto:me@x>Mail</a><img src=1.png>")
        >>> list(page.urls()), list(page.urls("img", "src"))
        (['http://x/shop/1'], ['http://x/shop/1.png'])
        """
        for raw_url in self.css(css).attrs(attribute):
            if joined := resolve(self.base, raw_url, encoding=self.encoding):
                yield joined
