# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Reads tags with the states of the standard's tokenizer (WHATWG HTML, 13.2.5), for `link_scanner.py`.

    data ─┬─ <name   tag name ─► attribute name ⇄ attribute value ─► a tag, if its `>` follows
          ├─ </name  the same
          ├─ <!--    comment, up to `-->` or `--!>`
          ├─ <![CDATA[  in SVG and MathML, up to `]]>`
          ├─ <! <? </  bogus comment or doctype, up to `>`
          └─ else    text

Each call of `next_tag` reads up to the end of the next tag and returns the kind of this tag. The attributes
of the tag are read only if the element can have a link or a directive, or if the caller wants some attributes
of all elements. Where raw text begins depends on the elements around the tag. The caller keeps track of these
elements, and calls `skip_raw_text` where raw text begins. No state looks beyond the end of its token, so
the time is linear for any input.
"""

import cython

from crawler.extract.references import attribute_text

if cython.compiled:
    from cython.cimports.cpython.unicode import PyUnicode_DecodeUTF8
    from cython.cimports.libc.string import memchr

COMPILED: bool = cython.compiled

NOTHING, START, END = range(3)  # results of `next_tag`
# the kinds of text before a tag, by the first character that is not white space
BLANK, TEXT, NUL = range(3)

# Numbers for the elements that must be distinguished. Attributes are read for the elements from A to IFRAME.
# The elements from IFRAME to NOFRAMES contain raw text.
NAMES = (
    b"a", b"area", b"link", b"meta", b"base", b"input", b"iframe", b"title", b"textarea", b"style", b"script", b"xmp",
    b"noembed", b"noframes", b"noscript", b"basefont", b"bgsound", b"html", b"head", b"body", b"br", b"p", b"form",
    b"template", b"frame", b"frameset", b"svg", b"math", b"plaintext", b"object", b"applet", b"marquee",
    b"select", b"option", b"optgroup", b"image",
    b"table", b"caption", b"col", b"colgroup", b"tbody", b"tfoot", b"thead", b"tr", b"td", b"th",
)  # fmt: skip
(
    OTHER, A, AREA, LINK, META, BASE, INPUT, IFRAME, TITLE, TEXTAREA, STYLE, SCRIPT, XMP, NOEMBED, NOFRAMES,
    NOSCRIPT, BASEFONT, BGSOUND, HTML, HEAD, BODY, BR, P, FORM, TEMPLATE, FRAME, FRAMESET, SVG, MATH, PLAINTEXT,
    OBJECT, APPLET, MARQUEE,
    SELECT, OPTION, OPTGROUP, IMAGE,
    TABLE, CAPTION, COL, COLGROUP, TBODY, TFOOT, THEAD, TR, TD, TH,
) = range(1 + len(NAMES))  # fmt: skip
# the attributes that the reader reads, as bits
HREF, REL, SRC, CONTENT, NAME, HTTP_EQUIV, TYPE = (1 << place for place in range(7))
_MASK = cython.declare(cython.ulonglong, (1 << 64) - 1)
_FACTOR = cython.declare(cython.ulonglong, 0x9E3779B97F4A7C15)
_keys = cython.declare(cython.ulonglong[256])  # names as 64-bit numbers, in a hash table with open addressing
_elements = cython.declare(cython.uchar[256])
_classes = cython.declare(cython.uchar[256])
# Classes of bytes. A NUL follows the last byte of the page, so NUL also ends names and values.
_BLANK = cython.declare(cython.uchar, 1)
_ENDS_NAME = cython.declare(cython.uchar, 2)
_ENDS_VALUE = cython.declare(cython.uchar, 4)
_LETTER = cython.declare(cython.uchar, 8)


def _fill_tables() -> None:
    for number in range(256):
        _classes[number] = (
            (1 if number in b"\t\n\f\r " else 0)
            | (2 if number in b"\0\t\n\f\r />=" else 0)
            | (4 if number in b"\0\t\n\f\r >" else 0)
            | (8 if chr(number).isascii() and chr(number).isalpha() else 0)
        )
        _keys[number] = _elements[number] = 0
    for element, name in enumerate(NAMES, 1):
        if len(name) <= 8:
            key: cython.ulonglong = int.from_bytes(name, "big")
            slot: cython.int = (key * _FACTOR & _MASK) >> 56
            while _keys[slot]:
                slot = (slot + 1) & 255
            _keys[slot], _elements[slot] = key, element


_fill_tables()


class TagReader:
    """Reads the tags of one page, which is UTF-8.

    The fields describe the last tag. `element` is its element. The name of the tag is at the positions `tag_at`
    to `tag_end`. `closed` says whether the tag ends in `/>`. `seen` says which attributes it has. The value of
    each attribute is in a field of its own, which is None if the attribute has no value. `href` is an
    exception: its value is at the positions `href_at` to `href_end`, and `href_at` is -1 if `href` has no
    value. Most links of a page are repeated, and the caller can recognize a repeated link in the text without
    building its value. `before` is the kind of text before the tag.

    `wanted` names further attributes. They are read for all elements, except that `href` and `rel` are not
    read again for `a` and `area`. `attributes` holds the wanted attributes of the last tag with their values;
    it is None if the tag has none.
    """

    def __init__(self, content: bytes, wanted: dict[bytes, str] | None = None) -> None:
        self.content = content
        self.wanted = wanted
        self.attributes: dict[str, str | None] | None = None
        # For each first letter of a wanted name: the lengths of the wanted names that begin with it, one bit
        # for each length. The index is the last five bits of the letter. Most attributes are skipped, because
        # no wanted name has their letter and length.
        if not cython.compiled:
            self.wanted_lengths = [0] * 32
        for name in wanted or ():
            self.wanted_lengths[name[0] & 31] |= 1 << len(name)
        self.text = content if cython.compiled else content + b"\0"
        self.at = 0
        self.end = len(content)
        # The caller sets the next three fields: whether CDATA sections exist at this place, whether `before`
        # is wanted, and whether tags of OTHER elements are skipped.
        self.in_foreign = False
        self.sees_text = True
        self.skips_others = False

    @cython.final
    def next_tag(self) -> cython.int:
        """Read up to the end of the next tag (data state); return its kind, or NOTHING at the end of the input."""
        at: cython.Py_ssize_t
        character: cython.uchar
        ends: cython.bint
        self.before = BLANK
        while True:
            at = self.find(60, self.at)
            if self.before == BLANK and self.sees_text:
                self._see_text(self.at, at if at >= 0 else self.end)
            if at < 0:
                return NOTHING
            self.at = at + 1
            character = self.text[at + 1]
            ends = character == 47
            if _classes[self.text[at + 2] if ends else character] & _LETTER:
                self.at += ends
                self.element = self._tag_name()
                if self.element == OTHER and self.skips_others and self.text[self.at] == 62:  # as most tags
                    self.at += 1
                    continue
                if not self._attributes(OTHER < self.element <= IFRAME and not ends):
                    return NOTHING  # the input ends before the `>`
                if self.element != OTHER or not self.skips_others:
                    return END if ends else START
            elif not self._other_markup(character):
                return NOTHING

    @cython.final
    def _see_text(self, begin: cython.Py_ssize_t, end: cython.Py_ssize_t):
        at: cython.Py_ssize_t
        for at in range(begin, end):
            if not _classes[self.text[at]] & _BLANK:
                self.before = TEXT if self.text[at] else NUL
                return

    @cython.final
    def _other_markup(self, character: cython.uchar) -> cython.bint:
        """Read markup that is not a tag (tag open and end tag open states); return False at the end of the input."""
        if character == 33:  # !
            self.at += 1
            return self._declaration()
        if character == 47 and self.text[self.at + 1] == 62:  # `</>` is nothing
            self.at += 2
        elif character == 47 or character == 63:  # a `!`, `/` or `?`
            return self._bogus_comment()
        elif self.before == BLANK:
            self.before = TEXT  # the `<`
        return True

    @cython.final
    def _declaration(self) -> cython.bint:
        """Read a comment, a CDATA section or a doctype, which ends at `>` (markup declaration open state)."""
        text = self.text
        at: cython.Py_ssize_t = self.at
        if text[at] == 45 and text[at + 1] == 45:
            self.at = at + 2
            if text[at + 2] == 62:  # `<!-->`
                self.at = at + 3
                return True
            if text[at + 2] == 45 and text[at + 3] == 62:  # `<!--->`
                self.at = at + 4
                return True
            return self._until(45, True)
        if self.in_foreign and self.content.startswith(b"[CDATA[", at):
            self.at = at + 7
            return self._until(93, False)
        return self._bogus_comment()

    @cython.final
    def _bogus_comment(self) -> cython.bint:
        at: cython.Py_ssize_t = self.find(62, self.at)
        self.at = at + 1
        return at >= 0

    @cython.final
    def _until(self, character: cython.int, bang: cython.bint) -> cython.bint:
        """Skip a comment or CDATA section: up to `character` twice and a `>`, or if `bang` is true, also `!>`."""
        text = self.text
        begin: cython.Py_ssize_t = self.at
        at: cython.Py_ssize_t = begin
        last: cython.Py_ssize_t
        while True:
            at = self.find(62, at)
            if at < 0:
                return False
            last = at - 1
            if bang and last > begin and text[last] == 33:
                last -= 1
            at += 1
            if last > begin and text[last] == character and text[last - 1] == character:
                self.at = at
                return True

    @cython.final
    def skip_raw_text(self, element: cython.int) -> cython.Py_ssize_t:
        """Move past the end tag of an element with raw text. Return the position of that tag; -1 if it is uncertain.

        The position is uncertain if there is no end tag, because the rest of the page is then text. It is
        also uncertain if a script contains `<script>` after `<!--`, because such a script may end later.
        """
        text = self.text
        name: bytes = NAMES[element - 1]
        size: cython.Py_ssize_t = len(name)
        at: cython.Py_ssize_t = self.find(60, self.at)
        escaped: cython.bint = False
        while at >= 0:
            if text[at + 1] == 47:
                if self._is_tag(at + 2, name, size):
                    self.at = at + 2 + size
                    return at if self._attributes(False) else -1
            elif element == SCRIPT:
                escaped = escaped or (text[at + 1] == 33 and self.content.startswith(b"--", at + 2))
                if escaped and self._is_tag(at + 1, name, size):
                    return -1
            at = self.find(60, at + 1)
        return -1

    @cython.final
    def _tag_name(self) -> cython.int:
        """Read a tag name (tag name state); return the element."""
        text = self.text
        at: cython.Py_ssize_t = self.at
        key: cython.ulonglong = 0
        slot: cython.int
        character: cython.uchar
        self.tag_at = at
        while True:
            character = text[at]
            if _classes[character] & 2 and character != 61 and (character or at >= self.end):  # _ENDS_NAME
                break
            key = key << 8 & _MASK | character | 32
            at += 1
        self.tag_end = self.at = at
        if at - self.tag_at > 8:
            return PLAINTEXT if at - self.tag_at == 9 and self._is(self.tag_at, b"plaintext") else OTHER
        slot = (key * _FACTOR & _MASK) >> 56
        while _keys[slot] != key:
            if not _keys[slot]:
                return OTHER
            slot = (slot + 1) & 255
        return _elements[slot]

    @cython.final
    def _attributes(self, noted: cython.bint) -> cython.bint:
        """Read the attributes of a tag up to its `>`; return False if the input ends first."""
        self.closed = False
        if self.wanted is not None:
            self.attributes = None
        if not noted and self.text[self.at] == 62:  # the tag has no attributes, like nearly all end tags
            self.at += 1
            return True
        if noted:
            self.seen = 0
            self.rel = self.src = self.content_value = self.name = self.http_equiv = self.type = None
        while self._attribute():
            if noted:
                self._note()
            if self.wanted is not None:
                self._keep_wanted()
        return self.at <= self.end

    @cython.final
    def _attribute(self) -> cython.bint:
        """Read one attribute.

        Return False at the `>` of the tag, or at the end of the input; in the latter case, `at` is then
        beyond the end.
        """
        text = self.text
        at: cython.Py_ssize_t = self.at
        while _classes[text[at]] & _BLANK or text[at] == 47:
            if text[at] == 47:
                self.closed = text[at + 1] == 62
            at += 1
        if text[at] == 62 or at >= self.end:
            self.at = at + 1
            return False
        self.name_at = at
        at += 1  # a name may begin with `=`
        while not _classes[text[at]] & _ENDS_NAME or (text[at] == 0 and at < self.end):
            at += 1
        self.name_end = at
        while _classes[text[at]] & _BLANK:
            at += 1
        if text[at] == 61:
            return self._attribute_value(at + 1)
        self.value_at = self.value_end = -1
        self.at = at
        return True

    @cython.final
    def _attribute_value(self, at: cython.Py_ssize_t) -> cython.bint:
        text = self.text
        while _classes[text[at]] & _BLANK:
            at += 1
        if text[at] == 34 or text[at] == 39:
            self.value_at = at + 1
            self.value_end = self.find(text[at], at + 1)
            self.at = self.value_end + 1
            if self.value_end < 0:
                self.at = self.end + 1
                return False
            return True
        self.value_at = at if text[at] != 62 else -1  # lexbor reports `x=>` as an attribute without a value
        while not _classes[text[at]] & _ENDS_VALUE or (text[at] == 0 and at < self.end):
            at += 1
        self.value_end = self.at = at
        return True

    @cython.final
    def _note(self):
        """Keep the attribute if the scanner needs its name. Of several attributes of one name, the first is kept."""
        begin: cython.Py_ssize_t = self.name_at
        length: cython.Py_ssize_t = self.name_end - begin
        if length == 4:
            if self._is_new(HREF, b"href"):
                self.href_at, self.href_end = self.value_at, self.value_end
            elif self._is_new(NAME, b"name"):
                self.name = self.value(self.value_at, self.value_end)
            elif self._is_new(TYPE, b"type"):
                self.type = self.value(self.value_at, self.value_end)
        elif length == 3:
            if self._is_new(REL, b"rel"):
                self.rel = self.value(self.value_at, self.value_end)
            elif self._is_new(SRC, b"src"):
                self.src = self.value(self.value_at, self.value_end)
        elif length == 7:
            if self._is_new(CONTENT, b"content"):
                self.content_value = self.value(self.value_at, self.value_end)
        elif length == 10 and self._is_new(HTTP_EQUIV, b"http-equiv"):
            self.http_equiv = self.value(self.value_at, self.value_end)

    @cython.final
    def _keep_wanted(self):
        """Keep the attribute if it is wanted. Of several attributes of one name, the first is kept."""
        begin: cython.Py_ssize_t = self.name_at
        length: cython.Py_ssize_t = self.name_end - begin
        letter: cython.uchar = self.text[begin] & 31
        assert self.wanted is not None
        if length > 31 or not self.wanted_lengths[letter] >> length & 1:
            return
        if OTHER < self.element <= AREA and (letter == 8 or letter == 18):  # `href` and `rel`
            return
        name = self.wanted.get(self.content[begin : self.name_end].lower())
        if name is not None:
            if self.attributes is None:
                self.attributes = {}
            if name not in self.attributes:
                self.attributes[name] = self.value(self.value_at, self.value_end)

    @cython.final
    def _is_new(self, attribute: cython.int, name: bytes) -> cython.bint:
        """Return whether the attribute has this name and is the first one of this name in its tag."""
        if self.seen & attribute or not self._is(self.name_at, name):
            return False
        self.seen |= attribute
        return True

    @cython.final
    def value(self, begin: cython.Py_ssize_t, end: cython.Py_ssize_t):
        """Return the attribute value between two positions; None if `begin` is -1, which means that there is no value."""
        if begin < 0:
            return None
        if not cython.compiled:
            value = self.content[begin:end].decode("utf-8", "replace")
            return as_parsed(value)
        start = self.text + begin
        size: cython.Py_ssize_t = end - begin
        value = PyUnicode_DecodeUTF8(cython.cast(cython.p_char, start), size, "replace")
        if memchr(start, 38, size) or memchr(start, 13, size) or memchr(start, 0, size):
            return as_parsed(value)
        return value

    @cython.final
    def find(self, character: cython.int, begin: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Return the next position of `character` from `begin` on; -1 if there is none."""
        if not cython.compiled:
            return self.content.find(character, begin)
        if begin >= self.end:
            return -1
        text = self.text
        place = cython.cast(cython.p_uchar, memchr(text + begin, character, self.end - begin))
        return -1 if place == cython.NULL else place - text

    @cython.final
    def _is_tag(self, begin: cython.Py_ssize_t, name: bytes, size: cython.Py_ssize_t) -> cython.bint:
        """Return whether the tag name that begins at `begin` is `name`."""
        if not self._is(begin, name):
            return False
        last: cython.uchar = self.text[begin + size]
        return last == 47 or last == 62 or _classes[last] & _BLANK != 0

    @cython.final
    def _is(self, begin: cython.Py_ssize_t, name: bytes) -> cython.bint:
        """Return whether the bytes from `begin` on are `name`, in upper or lower case."""
        at: cython.Py_ssize_t
        for at in range(len(name)):  # noqa: SIM110
            if self.text[begin + at] | 32 != name[at]:
                return False
        return True


def as_parsed(value: str) -> str:
    """Return an attribute value as the tokenizer reads it: apply `with_newlines`, and decode references."""
    return attribute_text(with_newlines(value))


def with_newlines(text: str) -> str:
    """Return a text with newlines normalized and NUL replaced."""
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "\ufffd")
