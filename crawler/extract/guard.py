"""What is done with a page before the parser may see it.

Lexbor holds the interpreter while it parses, and some inputs cost it far more
than a linear time (selectolax 1.0.2, CPU on the development machine):

    n distinct attributes on one tag            5,000: 51 ms   10,000: 245 ms   20,000: 805 ms
    n open elements (`<svg>` + `<g>` * n)       5,000: 178 ms; block elements 5,000: 38 ms
    n/2 open formatting elements, n/2 tags that reopen them all (`<b a1><p><b a2><p>...`)
                                                2,500: 247 ms and 170 MB   5,000: 2.8 s and 750 MB

The last one is the worst, and the cheapest to take away: formatting elements
reopened in numbers must differ in their attributes (three equal ones at most
are kept, WHATWG 13.2.4.3), and no link stands in the attributes of a
formatting element other than `a`. So pages with many different ones are parsed
without these attributes (`without_formatting_attributes`), which bounds it.

`judge` looks at every page, already as UTF-8, at some 10 us for 45 kB (50 us above 1,500 tags):

    SAFE        parse here: too small, or too few tags, for trouble; what is left costs 0.2 s at
                worst, 0.8 s for a page that hides one long tag behind `>` in quoted values
    STRIP       parse here, without the attributes of formatting elements
    APART       parse in the worker, under its CPU and memory limit: large, or suspicious
    EXCESSIVE   more open elements, or attributes on a tag, than allowed: only a plain scan

A suspicion is cheap to raise and may be wrong: APART gives the same result as
SAFE. EXCESSIVE is said after a closer look only. That is no proof - what an
end tag closes only the parser knows - so the worker's limits stand behind it.
"""

import re
from enum import Enum

import numpy as np

from crawler.config import ExtractConfig

# Up to so many tags nothing costs more than 0.2 s and 100 MB.
TAGS_HARMLESS = 1500
# Elements that reopening may create, at 0.42 us and 320 bytes each.
REOPENED_MAX = 400_000
# Distinct attributes take 3.4 bytes each (two-letter names run out at some 4,000).
ATTRIBUTE_BYTES = 3
# Up to this size one tag cannot have more attributes than cost 0.8 s.
ATTRIBUTES_HARMLESS_BYTES = 64 << 10
SEPARATORS_MAX = 20_000

_LESS, _SLASH = ord("<"), ord("/")
_TAG_BYTES_MEAN_MIN = 3
_FORMATTING = rb"b|big|code|em|font|i|nobr|s|small|strike|strong|tt|u"
_PLAIN_TAG = re.compile(
    rb"""[^\s"'=/<>]+(?:[\s/]+(?:[^\s"'=/<>]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>]+))?)?)*+""", re.DOTALL
)
_SPELLING_BYTES = 400  # of a formatting tag; a longer one is not plain
_EQUAL_OPEN_MAX = 3  # of equal formatting elements, WHATWG 13.2.4.3
_FORMATTING_ATTRIBUTES = re.compile(rb"<(" + _FORMATTING + rb")[\t\n\f\r /][^>]*+", re.IGNORECASE)
_TAG = re.compile(rb"</?[a-z][^\t\n\f\r />]*+")
_START = re.compile(rb"<[A-Za-z]")
_RAW_TEXT = re.compile(
    rb"<!--(?s:.*?)(?:-->|\Z)|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b(?s:.*?)(?:</\1|\Z)",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(rb"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>]*+))?+""")
# Elements that never stay open, or that the next of their kind closes.
_NOT_NESTING = frozenset(
    b"area base br col embed hr img input link meta param source track wbr "
    b"p li dt dd option optgroup tr td th tbody thead tfoot colgroup rp rt".split()
)


def _formatting_prefixes() -> np.ndarray:
    """For each two bytes after `<`, as a little-endian number: whether a formatting element may begin so."""
    table = np.zeros(1 << 16, np.bool_)
    for name in _FORMATTING.split(b"|"):
        seconds = name[1:2] or b"\t\n\f\r /"  # `<b>` alone has no attributes
        for first in (name[0], name[0] & 0xDF):
            for second in seconds:
                table[first | second << 8] = True
                if len(name) > 1:
                    table[first | (second & 0xDF) << 8] = True
    return table


_MAY_FORMAT = _formatting_prefixes()


class Judgement(Enum):
    """What to do with a page."""

    SAFE = "safe"
    STRIP = "strip"
    APART = "apart"
    EXCESSIVE = "excessive"


def judge(content: bytes, config: ExtractConfig) -> Judgement:
    """Return how `content` is to be read; the worker never asks for more than STRIP."""
    size = len(content)
    if size <= _TAG_BYTES_MEAN_MIN * TAGS_HARMLESS:
        return Judgement.SAFE
    octets = np.frombuffer(content, np.uint8)
    begins = octets == _LESS
    tags = int(np.count_nonzero(begins))
    long_tag = not _ends_tags(content, config.attributes_max * ATTRIBUTE_BYTES // 2)
    many_tags = tags > config.inline_tags_max
    if (
        many_tags
        and _unended(begins, octets) > config.depth_max
        and open_elements(content) > config.depth_max
    ):
        return Judgement.EXCESSIVE
    if long_tag and most_attributes(content, config.attributes_max) > config.attributes_max:
        return Judgement.EXCESSIVE
    large = size > config.inline_bytes_max
    if (
        large
        or long_tag
        or many_tags
        or (size > ATTRIBUTES_HARMLESS_BYTES and _separators(octets) > SEPARATORS_MAX)
    ):
        return Judgement.APART
    return Judgement.STRIP if _may_reopen(content, begins, tags) else Judgement.SAFE


def strip(content: bytes) -> bytes:
    """`content` without the attributes of formatting elements (but `a`), if it has many."""
    begins = np.frombuffer(content, np.uint8) == _LESS
    tags = int(np.count_nonzero(begins))
    return without_formatting_attributes(content) if _may_reopen(content, begins, tags) else content


def without_formatting_attributes(content: bytes) -> bytes:
    """The page with no attribute on any formatting element but `a`."""
    return _FORMATTING_ATTRIBUTES.sub(rb"<\1", content)


def _may_reopen(content: bytes, begins: np.ndarray, tags: int) -> bool:
    """Whether formatting elements might be reopened more than REOPENED_MAX times."""
    if tags <= TAGS_HARMLESS:
        return False
    starts = _formatting_starts(content, begins)
    return len(starts) * tags > REOPENED_MAX and _different(content, starts) * tags > REOPENED_MAX


def _different(content: bytes, starts: np.ndarray) -> int:
    """An upper bound of the formatting elements that can be open: three of each spelling.

    A spelling that is not plain may go on behind the `>` it seems to end with;
    then any two may differ.
    """
    spellings = {content[start : start + _SPELLING_BYTES].partition(b">")[0] for start in starts.tolist()}
    if max(map(len, spellings)) == _SPELLING_BYTES or not all(map(_PLAIN_TAG.fullmatch, spellings)):
        return len(starts)
    return min(len(starts), _EQUAL_OPEN_MAX * len(spellings))


def open_elements(content: bytes) -> int:
    """The most elements open at once: start tags without an end tag of their name so far.

    Elements that are closed by what follows them do not count.
    """
    count: dict[bytes, int] = {}
    depth = deepest = 0
    for tag in _TAG.findall(_RAW_TEXT.sub(b"", content).lower()):
        if tag[1] == _SLASH:
            name = tag[2:]
            if count.get(name, 0):
                count[name] -= 1
                depth -= 1
        elif (name := tag[1:]) not in _NOT_NESTING:
            count[name] = count.get(name, 0) + 1
            depth += 1
            deepest = max(deepest, depth)
    return deepest


def most_attributes(content: bytes, enough: int) -> int:
    """The most attributes of one tag; stops at a tag with more than `enough`, passes short tags over."""
    text = _RAW_TEXT.sub(b"", content)
    most = at = 0
    while most <= enough and (start := _START.search(text, at)):
        at = start.end()
        if text.find(b">", at, at + enough) < 0:
            found = 0
            while attribute := _ATTRIBUTE.match(text, at):
                at = attribute.end()
                found += 1
            most = max(most, found)
    return most


def _unended(begins: np.ndarray, octets: np.ndarray) -> int:
    """Start tags less end tags."""
    ends = int(np.count_nonzero(begins[:-1] & (octets[1:] == _SLASH)))
    return int(np.count_nonzero(begins)) - 2 * ends


def _ends_tags(content: bytes, step: int) -> bool:
    """Whether every stretch of `step` bytes has a `>`, so that no plain tag is longer than two of them."""
    return all(content.find(b">", at, at + step) >= 0 for at in range(0, len(content) - step + 1, step))


def _separators(octets: np.ndarray) -> int:
    """An upper bound of the attributes of any tag: ends of blanks, slashes, pairs of quotes."""
    blank = octets <= 0x20
    quotes = np.count_nonzero(octets == 0x22) + np.count_nonzero(octets == 0x27)
    return int(np.count_nonzero(blank[:-1] & ~blank[1:]) + np.count_nonzero(octets == 0x2F) + quotes // 2)


def _formatting_starts(content: bytes, begins: np.ndarray) -> np.ndarray:
    """Where the names of formatting elements begin, and perhaps some others."""
    starts = np.flatnonzero(begins[:-2]) + 1
    pairs = np.ndarray((len(content) - 1,), "<u2", content, strides=(1,))
    return starts[_MAY_FORMAT[pairs[starts]]]
