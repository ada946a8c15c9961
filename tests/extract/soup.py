"""Make a random page from a seed, with well nested, badly nested and damaged tags of every kind in the standard."""

import random

_RAW = ["title", "textarea", "style", "script", "xmp", "noembed", "noframes", "iframe"]
_HEAD = ["html", "head", "body", "noscript", "base", "basefont", "bgsound", "link", "meta", "template"]
_TABLE = ["table", "caption", "col", "colgroup", "tbody", "tfoot", "thead", "tr", "td", "th"]
_FORMATTING = ["b", "i", "nobr", "font", "code"]
_BODY = [
    "p",
    "div",
    "li",
    "ul",
    "dd",
    "h1",
    "button",
    "form",
    "input",
    "select",
    "option",
    "optgroup",
    "hr",
    "br",
]
_BODY += [
    "object",
    "marquee",
    "img",
    "image",
    "pre",
    "span",
    "address",
    "ruby",
    "rt",
    "option",
    "details",
    "keygen",
]
_FOREIGN = [
    "svg",
    "math",
    "mi",
    "mtext",
    "desc",
    "foreignObject",
    "annotation-xml",
    "path",
    "g",
    "mglyph",
    "use",
    "image",
]
_RARE = [
    "frameset",
    "frame",
    "plaintext",
    "listing",
    "area",
    "x-y",
    "applet",
    "embed",
    "dialog",
    "search",
    "menuitem",
]
_GROUPS = [_RAW, _HEAD, _TABLE, _TABLE, _FORMATTING, _BODY, _BODY, _FOREIGN, _RARE]
_TEXTS = [
    "x",
    " ",
    "\n",
    "\t",
    "&amp;",
    "\0",
    "\r",
    "é",
    "<",
    "</",
    "</>",
    "<!",
    "<?x>",
    "<!x>",
    "<!doctype html>",
    "&",
    "]]>",
]
_TEXTS += [
    "<style>a{b:url(s1)}\r\n\0</style>",
    "<!-->",
    "<!--->",
    "<!-- -->",
    "<!--",
    "-->",
    "--!>",
    "<![CDATA[",
    "<!-- <!-- -->",
    "<1>",
    "< a href=q>",
    "=",
    ">",
]
_VALUES = [
    "",
    "x",
    "a&amp;b",
    "a&copy=1",
    "&lt",
    "&#0;",
    "&#x80;",
    "a#b",
    " x\r\ny",
    "é",
    "\0",
    "/x/",
    "//h/",
    "x>y",
]
_ATTRIBUTES = [
    "href",
    "src",
    "content",
    "rel",
    "name",
    "http-equiv",
    "type",
    "HREF",
    "class",
    "xlink:href",
    "encoding",
    "color",
]
# attributes that hold requisites, or URLs that are links only with `all_attributes`
_URLS = [
    "style",
    "srcset",
    "imagesrcset",
    "poster",
    "background",
    "data",
    "src",
    "href",
    "xlink:href",
    "action",
    "method",
    "cite",
    "longdesc",
    "Background",
]
_OF = {
    "rel": [
        "nofollow",
        "next",
        "NoFollow x",
        "canonical",
        "stylesheet",
        "alternate\fnofollow",
        "x\x0bnofollow",
        "prev",
    ],
    "name": ["robots", "me", "viewport", "Robots "],
    "content": ["noindex", "nofollow", "0;url=u", "none,noarchive", "noarchive"],
    "http-equiv": ["refresh", "Refresh", "content-type"],
    "type": ["hidden", "Hidden", "text"],
    "encoding": ["text/html", "application/xhtml+xml", "x"],
}
_OF_URLS = {
    "style": ["x:url(u{})", "x:url(&quot;u{}&quot;)", "@import 'u{}'"],
    "srcset": ["u{0} 1x, v{0} 2x", "u{}"],
    "method": ["post", "get", "GET", ""],
}


def soup(seed: int) -> bytes:
    """Return the random page that this seed determines."""
    return Soup(random.Random(seed)).page()


class Soup:
    """Makes a random page. Each link has a target of its own, so a test notices repeated and misplaced links."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._number = 0
        self._open: list[str] = []

    def page(self) -> bytes:
        """Make a random page of up to 40 pieces, of which one in ten is damaged."""
        chance = self._chance
        narrow = chance.sample(_GROUPS, chance.randint(1, 4))
        parts = [self._piece(narrow) for _ in range(chance.choice((4, 10, 40)))]
        content = bytearray("".join(parts).encode())
        if chance.random() < 0.1:
            for _ in range(chance.randint(1, 4)):
                self._damage(content)
        return bytes(content)

    def _damage(self, content: bytearray) -> None:
        at = self._chance.randrange(len(content) + 1)
        drawn = self._chance.random()
        if drawn < 0.5:
            del content[at : at + self._chance.randint(1, 3)]
        elif drawn < 0.9:
            content[at:at] = bytes([self._chance.choice(b"<>/!-=\"'&; \0\r\n\xff\xc3aA[]#?")])
        else:
            del content[at:]

    def _piece(self, groups: list[list[str]]) -> str:
        drawn = self._chance.random()
        if drawn < 0.3:
            return self._link()
        if drawn < 0.6:
            return self._start(self._chance.choice(self._chance.choice(groups)))
        if drawn < 0.75 and self._open:
            return f"</{self._open.pop()}>"
        if drawn < 0.88:
            name = self._chance.choice(self._chance.choice(groups))
            return f"</{self._cased(name)}{self._chance.choice(['', ' ', '/', ' x=y'])}>"
        return self._chance.choice(_TEXTS)

    def _link(self) -> str:
        self._number += 1
        name, attribute = self._chance.choice(
            [("a", "href")] * 6
            + [
                ("area", "href"),
                ("iframe", "src"),
                ("link", "href"),
                ("base", "href"),
                ("meta", "content"),
                ("A", "Href"),
            ]
        )
        end = (
            "</a>" if name == "a" and self._chance.random() < 0.6 else "</iframe>" if name == "iframe" else ""
        )
        return f"<{name} {self._attributes()} {attribute}=u{self._number}{self._attributes()}>{end}"

    def _start(self, name: str) -> str:
        if self._chance.random() < 0.6:
            self._open.append(name)
        closed = "/" if self._chance.random() < 0.1 else ""
        return f"<{self._cased(name)}{self._attributes()}{closed}>"

    def _attributes(self) -> str:
        if self._chance.random() < 0.7:
            return ""
        return "".join(self._attribute() for _ in range(self._chance.randint(1, 3)))

    def _attribute(self) -> str:
        chance = self._chance
        if chance.random() < 0.3:
            return self._url()
        name = chance.choice(_ATTRIBUTES)
        value = chance.choice(_OF.get(name, _VALUES) if chance.random() < 0.8 else _VALUES)
        form = chance.choice([' {}="{}"', " {}='{}'", " {}={}", " {}", " {} = {} ", '{}="{}"', " {}/"])
        return form.format(name, value)

    def _url(self) -> str:
        """Return an attribute with a new URL. `formaction` is rare: the scanner leaves such pages to the parser."""
        self._number += 1
        name = self._chance.choice(_URLS) if self._chance.random() < 0.99 else "formaction"
        value = self._chance.choice(_OF_URLS.get(name, ["u{}", "u{}#x", "#u{}"])).format(self._number)
        return f' {name}="{value}"'

    def _cased(self, name: str) -> str:
        return name.upper() if self._chance.random() < 0.05 else name
