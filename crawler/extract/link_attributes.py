"""The HTML attributes that hold URLs: one table for all modules that read or rewrite these attributes.

    links.py, scan.py                       the rows that are followed
    link_scanner.py                         the same rows, as a compiled kernel; a test holds it to this table
    requisites.py                           the rows of requisites and frames; with `all_attributes` also the other rows
                                            that are never followed; it reads the elements of a tree, or those that
                                            the scanner hands over
    rewrite.py                              every row

`extract/README.md`, "Links", prints the table. Two more places hold URLs, but are
not in the table: the text of `<style>`, and the `content` of a `<meta>` with a refresh.
"""

from enum import StrEnum
from typing import NamedTuple


class Kind(StrEnum):
    """The roles of a URL on its page."""

    LINK = "link"  # a, area, form, cite: leads to another page
    REFRESH = "refresh"  # meta refresh: the browser loads the URL by itself
    FRAME = "frame"  # iframe, frame: a page inside the page
    REQUISITE = "requisite"  # image, style sheet, script, font, media
    BASE = "base"  # <base href>


class Form(StrEnum):
    """The syntax in which an attribute holds its URLs."""

    URL = "URL"
    CANDIDATES = "candidates"  # srcset: URLs with descriptors
    CSS = "CSS"


class LinkAttribute(NamedTuple):
    """A row of the table `LINK_ATTRIBUTES`.

    `elements` is () if the attribute can hold URLs on any element. `followed` means that the URLs are links
    of the page. `by_relation` means that the role of the URLs depends on the relation types
    (`FOLLOWED_RELATIONS`, `REQUISITE_RELATIONS`). `of_form` means that the URL is the target of a form, which
    is used only if the form is sent by GET.
    """

    attribute: str
    elements: tuple[str, ...]
    kind: Kind
    followed: bool = False
    form: Form = Form.URL
    by_relation: bool = False
    of_form: bool = False


_OF_SVG = ("image", "use", "feimage", "pattern", "lineargradient", "script")
LINK_ATTRIBUTES = (
    LinkAttribute("href", ("a", "area"), Kind.LINK, followed=True),
    LinkAttribute("src", ("iframe", "frame"), Kind.FRAME, followed=True),
    LinkAttribute("href", ("link",), Kind.LINK, by_relation=True),
    LinkAttribute("href", ("base",), Kind.BASE),
    LinkAttribute(
        "src",
        ("img", "script", "source", "video", "audio", "track", "embed", "input", "image"),
        Kind.REQUISITE,
    ),
    LinkAttribute("srcset", (), Kind.REQUISITE, form=Form.CANDIDATES),
    LinkAttribute("imagesrcset", (), Kind.REQUISITE, form=Form.CANDIDATES),
    LinkAttribute("poster", (), Kind.REQUISITE),
    LinkAttribute("background", (), Kind.REQUISITE),
    LinkAttribute("data", ("object",), Kind.REQUISITE),
    LinkAttribute("style", (), Kind.REQUISITE, form=Form.CSS),
    LinkAttribute("href", _OF_SVG, Kind.REQUISITE),
    LinkAttribute("xlink:href", _OF_SVG, Kind.REQUISITE),
    LinkAttribute("xlink:href", ("a",), Kind.LINK),
    LinkAttribute("action", ("form",), Kind.LINK, of_form=True),
    LinkAttribute("formaction", ("button", "input"), Kind.LINK, of_form=True),
    LinkAttribute("cite", (), Kind.LINK),
    LinkAttribute("longdesc", (), Kind.LINK),
)
FOLLOWED_RELATIONS = frozenset({"next", "prev", "alternate", "canonical"})
REQUISITE_RELATIONS = frozenset(
    {"stylesheet", "icon", "apple-touch-icon", "mask-icon", "preload", "modulepreload", "manifest"}
)
# Maps each element to its followed attribute, in the order of the table.
FOLLOWED = {element: row.attribute for row in LINK_ATTRIBUTES if row.followed for element in row.elements}


def page_table() -> str:
    """Return the table in the format of `extract/README.md`."""
    lines = ["| attribute | elements | kind of URL | followed |", "|---|---|---|---|"]
    for row in LINK_ATTRIBUTES:
        kind = row.kind.value if row.form is Form.URL else f"{row.kind.value}, {row.form.value}"
        followed = "by `rel`" if row.by_relation else "yes" if row.followed else "with `all_attributes`"
        if row.of_form:
            followed = "with `all_attributes`, if the form uses GET"
        if row.kind is Kind.BASE:
            followed = ""
        lines.append(
            f"| `{row.attribute}` | {', '.join(row.elements) or 'any element'} | {kind} | {followed} |"
        )
    return "\n".join(lines)
