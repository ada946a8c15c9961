# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Finds the links of a page in one pass over its bytes, without a tree.

`tag_reader.py` reads the tags. Of the standard's tree construction (WHATWG HTML, 13.2.6), the scanner follows
only the rules that decide whether an element is in the tree, and where:

    phase       where in the document the scanner is (before, in or after the head, or in the body); it decides
                which `<title>` is that of the page
    templates   open templates, whose contents are not searched
    foreign     open elements of SVG and MathML, where `<style>` and `<title>` are ordinary elements
    tables      open tables: whether content is in a cell, or misplaced

The scanner either finds the same links as lexbor's tree, in the same order, or it gives up: `scan` returns
False, and the caller parses the page. The scanner gives up where the tree may differ from the source:
misplaced content in tables, HTML inside SVG or MathML, framesets, raw text without an end, scripts with an
escaped `<script>`, a `<base>` in the body, NUL before the body. Formatting elements need no special
treatment: the standard may insert copies of them, but a copy always comes after its original, and only the
first of several equal links is used.

If requisites or rare attributes are wanted, the scanner hands over each element that has one of these
attributes, provided that the parser inserts the element (`_take_others`). The scanner gives up if the parser
would add the attributes to another element, or if it is uncertain whether a `<select>` is nested in another.
"""

import re
from typing import TYPE_CHECKING

import cython

from crawler.extract.collected import Collected
from crawler.extract.references import data_text

if cython.compiled:
    from cython.cimports.crawler.extract import tag_reader as tags
    from cython.cimports.libc.string import memchr, memcmp
else:
    from crawler.extract import tag_reader as tags
from crawler.extract.tag_reader import NAMES, TagReader, with_newlines

if TYPE_CHECKING:
    from crawler.extract.requisites import OtherUrls

COMPILED: bool = cython.compiled

# the insertion modes of the HTML standard, 13.2.6.4.1 to 13.2.6.4.7
BEFORE_HEAD, IN_HEAD, IN_NOSCRIPT, AFTER_HEAD, IN_BODY = range(5)
# whether a `<select>` is open; UNCERTAIN once a `<select>` has contained any element other than options
CLOSED, OPEN, UNCERTAIN = range(3)
_DEPTH_MAX = 200  # maximum number of open tables, and of open elements of SVG or MathML
_FACTOR = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
# Start tags that end SVG and MathML (13.2.6.5), and start tags of elements whose content is parsed differently
# inside SVG and MathML.
_BREAKOUTS = frozenset(
    b"b big blockquote body br center code dd div dl dt em embed h1 h2 h3 h4 h5 h6 head hr i img li listing menu meta "
    b"nobr ol p pre ruby s small span strong strike sub sup table tt u ul var font "
    b"base frame frameset iframe link noembed noframes noscript plaintext script template textarea xmp".split()
)
# Integration points (13.2.6): the elements of SVG and MathML in which start tags are parsed as HTML again.
_INTEGRATION_POINTS = frozenset(b"title desc foreignobject mi mo mn ms mtext annotation-xml".split())
_NOFOLLOW = re.compile(r"(?:\A|[ \t\n\f\r])nofollow(?:\Z|[ \t\n\f\r])", re.IGNORECASE | re.ASCII)


class LinkScanner(TagReader):
    """Scans one page, which is UTF-8.

    Args:
        found: gets the links, in `hrefs`. Its `take_link`, `take_meta` and `take_base` are called with these
            elements.
        links_max: the number of links that the caller uses. One more link is kept, in case the caller drops a link to
            the page itself.
        others: gets the requisites and the URLs in rarer attributes, if they are wanted.
    """

    def __init__(
        self, content: bytes, found: Collected, links_max: int, others: "OtherUrls | None" = None
    ) -> None:
        super().__init__(content, None if others is None else others.wanted)
        self.others = others
        self.has_html = self.has_form = False  # whether an `<html>` was seen, and whether a `<form>` is open
        self.select = CLOSED
        self.phase = BEFORE_HEAD
        self.templates = 0
        # whether an open template contains a link, or an element that sets a marker (`_in_template`)
        self.has_hidden_link = self.has_marker = False
        self.has_template = False
        if not cython.compiled:
            self.met_places = self.met_sizes = [0]  # not used
        # The place in the innermost open table. CAPTION, TD and TH mean that an element of this name is open.
        # TABLE means that content at this place would be misplaced. OTHER means that no table is open.
        self.place = tags.OTHER
        self.section = tags.OTHER  # TBODY, TFOOT, THEAD
        self.tables: list[int] = []  # place and section of each outer table
        self.foreign: list[bytes] = []  # names of open elements of SVG or MathML
        self.title: bytes | None = None
        self.found = found
        self.hrefs = found.hrefs
        self.links_max = links_max
        self.skips_nofollow = found.skips_nofollow

    def scan(self) -> bool:
        """Scan the page; return False if it must be parsed. In that case, discard what was found so far."""
        tag: cython.int
        self.is_whole = False
        while True:
            self.sees_text = self.phase < IN_BODY
            self.skips_others = not (
                self.sees_text
                or self.templates
                or self.in_foreign
                or self.place == tags.TABLE
                or self.others is not None
            )
            tag = self.next_tag()
            if self.sees_text and self.before != tags.BLANK and not self.templates:
                if self.before == tags.NUL:
                    return False
                self.phase = IN_BODY
            if tag == tags.NOTHING:
                return True
            if not (self._start() if tag == tags.START else self._end()):
                return self.is_whole

    def title_text(self) -> str:
        """Return the text of the first title in the head; "" if there is none."""
        if self.title is None:
            return ""
        return data_text(with_newlines(self.title.decode("utf-8", "replace")))

    @cython.final
    def _start(self) -> cython.bint:
        """Process a start tag; return False if the scan ends here."""
        element: cython.int = self.element
        if self.foreign:
            return self._foreign_start(element)
        if element in (tags.FRAME, tags.FRAMESET):
            return False
        if self.others is not None:
            self._note_select(element, True)
        if self.templates:
            return self._in_template(element) and self._insert(element)
        if self.attributes is not None and not self._take_others(element):
            return False
        if self.phase < IN_BODY and self._before_body(element):
            return True
        if element >= tags.TABLE:
            return self._table_start(element)
        if self.place == tags.TABLE and self._is_misplaced(element):
            return False
        return self._insert(element)

    @cython.final
    def _in_template(self, element: cython.int) -> cython.bint:
        """Return whether it is certain that the parser leaves all contents of the open template in the template.

        Some elements put a marker into the parser's list of active formatting elements (WHATWG HTML,
        13.2.4.3). If such an element is still open at the end of the template, the parser may reopen, after
        the template, the links that precede this element in the list. So for a template with a link and a
        marker, the result of the scanner is not certain.
        """
        self.has_hidden_link |= element == tags.A
        self.has_marker |= element in (tags.OBJECT, tags.APPLET, tags.MARQUEE, tags.CAPTION, tags.TD, tags.TH)
        return not (self.has_hidden_link and self.has_marker) and element not in (tags.COL, tags.COLGROUP)

    @cython.final
    def _insert(self, element: cython.int) -> cython.bint:
        """Process a start tag whose element the parser inserts where the tag stands."""
        if element == tags.OTHER:
            return True
        if element <= tags.IFRAME and not self.templates and not self._take(element):
            return False
        if tags.IFRAME <= element <= tags.NOFRAMES:
            return self._raw_text(element)
        if element == tags.PLAINTEXT:
            self.is_whole = True
            return False
        if element == tags.FORM and not self.templates:
            self.has_form = True
        elif element == tags.TEMPLATE:
            self.has_template = True
            if not self.templates:
                self.has_hidden_link = self.has_marker = False
            self.templates += 1
        elif element in (tags.SVG, tags.MATH) and not self.closed:
            self.foreign.append(NAMES[element - 1])
            self.in_foreign = True
        return True

    @cython.final
    def _take(self, element: cython.int) -> cython.bint:
        """Read an element that may hold a link or a directive; return False if the page must be parsed."""
        if element == tags.BASE and self.phase == IN_BODY:
            return False
        if not self._is_searched():
            return True
        if element in (tags.A, tags.AREA):
            if self.seen & tags.HREF and self.href_at >= 0 and not self._is_repeated():
                self._add(self._href())
        elif element == tags.IFRAME:
            if self.src is not None:
                self._add(self.src)
        elif element == tags.LINK:
            self.found.take_link(self.rel, self._href(), self.type)
        elif element == tags.META:
            self.found.take_meta(self.name, self.http_equiv, self.content_value)
        elif element == tags.BASE:
            self.found.take_base(self._href())
        return True

    @cython.final
    def _take_others(self, element: cython.int) -> cython.bint:
        """Hand over the wanted attributes if the parser inserts the element; return False if the page must be parsed."""
        inserted: cython.bint = True
        assert self.others is not None and self.attributes is not None
        if self.others.needs_tree(self.attributes):
            return False
        if element == tags.HTML:  # a second `<html>` or `<body>` adds its attributes to the first
            if self.phase != BEFORE_HEAD or self.has_html:
                return False
        elif element == tags.BODY:
            if self.phase == IN_BODY:
                return False
        elif element == tags.HEAD:
            inserted = self.phase == BEFORE_HEAD
        elif element == tags.NOSCRIPT:
            inserted = self.phase != IN_NOSCRIPT
        elif element == tags.FORM:
            inserted = not self.has_form
        elif element == tags.SELECT:
            if self.select != OPEN:
                return False
        elif element > tags.TABLE:
            inserted = self.place != tags.OTHER
        if inserted:
            self._hand_over(False)
        return True

    @cython.final
    def _hand_over(self, foreign: cython.bint):
        assert self.others is not None and self.attributes is not None
        name: bytes = self.content[self.tag_at : self.tag_end].lower()
        if name == b"image" and not foreign:
            name = b"img"
        self.others.take(name.decode("utf-8", "replace"), self.attributes)

    @cython.final
    def _note_select(self, element: cython.int, starts: cython.bint):
        """Note whether a `<select>` is open after this tag. A `<select>` inside another is ignored."""
        if element == tags.SELECT:
            if self.select != UNCERTAIN:
                self.select = (OPEN if self.select == CLOSED else UNCERTAIN) if starts else CLOSED
        elif self.select == OPEN and element != tags.OPTION and element != tags.OPTGROUP:
            self.select = UNCERTAIN

    @cython.final
    def _href(self):
        return self.value(self.href_at, self.href_end) if self.seen & tags.HREF else None

    @cython.final
    def _is_repeated(self):
        """Return whether an earlier link of this page has the same `href` up to the fragment.

        Links are remembered by a hash. Of two links with the same hash, only the later one is remembered. If
        the earlier one is repeated, it counts as new. Four of five links of a documentation page are repeated.
        For these links, no Python string is made.
        """
        if not cython.compiled:
            return False
        begin: cython.Py_ssize_t = self.href_at
        size: cython.Py_ssize_t = self.href_end - begin
        start = self.text + begin
        if memchr(start, 38, size):  # a character reference may stand for a `#`
            return False
        fragment = cython.cast(cython.p_uchar, memchr(start, 35, size))
        if fragment != cython.NULL:
            size = fragment - start
        key: cython.ulonglong = size
        at: cython.Py_ssize_t
        for at in range(size - 8 if size > 8 else 0, size):
            key = key << 8 ^ start[at]
        slot: cython.int = key * _FACTOR >> 56
        if self.met_sizes[slot] == size + 1 and not memcmp(start, self.text + self.met_places[slot], size):
            return True
        self.met_places[slot], self.met_sizes[slot] = begin, size + 1
        return False

    @cython.final
    def _add(self, raw_url: str):
        if len(self.hrefs) <= self.links_max:
            self.hrefs[raw_url.partition("#")[0] if "#" in raw_url else raw_url] = None

    @cython.final
    def _is_searched(self) -> cython.bint:
        """Return whether the element has an attribute that `links.py` searches for."""
        if self.seen & (tags.CONTENT | tags.SRC):
            return True
        if not self.seen & tags.HREF:
            return False
        return not (self.skips_nofollow and self.rel and _NOFOLLOW.search(self.rel))

    @cython.final
    def _raw_text(self, element: cython.int) -> cython.bint:
        begin: cython.Py_ssize_t = self.at
        end: cython.Py_ssize_t = self.skip_raw_text(element)
        if end < 0:
            return False
        if element == tags.TITLE and self.phase < IN_BODY and not self.templates and self.title is None:
            self.title = self.content[begin:end]
        elif element == tags.STYLE and self.others is not None and not self.templates:
            self.others.take_sheet(with_newlines(self.content[begin:end].decode("utf-8", "replace")))
        return True

    @cython.final
    def _end(self) -> cython.bint:
        element: cython.int = self.element
        if self.foreign:
            return self._foreign_end(element)
        if self.others is not None:
            self._note_select(element, False)
        if element == tags.FORM and not self.templates:
            self.has_form = False
        if self.templates:
            self.templates -= element == tags.TEMPLATE
        elif self.phase < IN_BODY:
            self._end_before_body(element)
        elif element >= tags.TABLE:
            self._table_end(element)
        return True

    @cython.final
    def _before_body(self, element: cython.int) -> cython.bint:
        """Process a start tag before the body; return whether the tag is ignored there."""
        if element == tags.HTML:
            self.has_html = True
            return True
        if self.phase == BEFORE_HEAD:
            self.phase = IN_HEAD
            if element == tags.HEAD:
                return True
        if element == tags.HEAD:
            return True
        if self.phase == IN_NOSCRIPT:
            if element == tags.NOSCRIPT:
                return True
            if element not in (tags.LINK, tags.META, tags.STYLE, tags.NOFRAMES, tags.BASEFONT, tags.BGSOUND):
                self.phase = IN_HEAD
        if element in (
            tags.LINK,
            tags.META,
            tags.BASE,
            tags.TITLE,
            tags.STYLE,
            tags.SCRIPT,
            tags.NOFRAMES,
            tags.BASEFONT,
            tags.BGSOUND,
            tags.TEMPLATE,
        ):
            return False
        if self.phase == IN_HEAD and element == tags.NOSCRIPT:
            self.phase = IN_NOSCRIPT
        else:
            self.phase = IN_BODY
        return False

    @cython.final
    def _end_before_body(self, element: cython.int):
        if self.phase == IN_NOSCRIPT:
            if element == tags.NOSCRIPT:
                self.phase = IN_HEAD
            elif element == tags.BR:
                self.phase = IN_BODY
        elif element == tags.HEAD and self.phase < AFTER_HEAD:
            self.phase = AFTER_HEAD
        elif element in (tags.BODY, tags.HTML, tags.BR):
            self.phase = IN_BODY

    @cython.final
    def _is_misplaced(self, element: cython.int) -> cython.bint:
        """Return whether a start tag here is in a table but outside its cells, so that the parser moves it out."""
        if element == tags.INPUT:
            return self.type is None or self.type.lower() != "hidden"
        return element not in (tags.STYLE, tags.SCRIPT, tags.TEMPLATE, tags.FORM)

    @cython.final
    def _table_start(self, element: cython.int) -> cython.bint:
        if element == tags.TABLE:
            if self.place != tags.TABLE:  # a `<table>` directly in a table ends that table
                if len(self.tables) == _DEPTH_MAX:
                    return False
                self.tables.append(self.place << 8 | self.section)
            self.place, self.section = tags.TABLE, tags.OTHER
        elif self.place == tags.OTHER:
            return True
        elif element in (tags.TR, tags.TD, tags.TH):
            self.section = self.section or tags.TBODY
            self.place = tags.TABLE if element == tags.TR else element
        elif tags.TBODY <= element <= tags.THEAD:
            self.place, self.section = tags.TABLE, element
        else:
            self.place, self.section = tags.CAPTION if element == tags.CAPTION else tags.TABLE, tags.OTHER
        return True

    @cython.final
    def _table_end(self, element: cython.int):
        if self.place == tags.OTHER:
            return
        if element == tags.TABLE:
            outer: cython.int = self.tables.pop()
            self.place, self.section = outer >> 8, outer & 255
        elif self.place == tags.CAPTION:
            if element == tags.CAPTION:
                self.place = tags.TABLE
        elif element == self.place or element == tags.TR:
            self.place = tags.TABLE
        elif element == self.section:
            self.place, self.section = tags.TABLE, tags.OTHER

    @cython.final
    def _foreign_start(self, element: cython.int) -> cython.bint:
        name: bytes = self.content[self.tag_at : self.tag_end].lower()
        foreign = self.foreign
        if name in _BREAKOUTS or foreign[len(foreign) - 1] in _INTEGRATION_POINTS:
            return False
        if len(foreign) == _DEPTH_MAX or (element in (tags.SVG, tags.MATH) and name != foreign[0]):
            return False
        if self.others is not None and not self.templates:
            if element == tags.STYLE:  # inside SVG or MathML, the text of `<style>` would have to be parsed
                return False
            if self.attributes is not None:
                if self.others.needs_tree(self.attributes):
                    return False
                self._hand_over(True)
        if element in (tags.A, tags.AREA) and not self.templates:
            self._take(element)
        if not self.closed:
            foreign.append(name)
        return True

    @cython.final
    def _foreign_end(self, element: cython.int) -> cython.bint:
        """Close foreign elements up to the element of this name. The end tag of an HTML element has no effect."""
        name: bytes = self.content[self.tag_at : self.tag_end].lower()
        foreign = self.foreign
        if element in (tags.BR, tags.P) or name not in foreign:
            return False
        while foreign.pop() != name:
            pass
        self.in_foreign = bool(foreign)
        return True
