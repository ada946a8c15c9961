"""Judges a page before it is parsed.

Lexbor holds the interpreter lock while it parses, and for some inputs it needs far more than linear time
(selectolax 1.0.2, CPU on the development machine):

    n distinct attributes on one tag            5,000: 51 ms   10,000: 245 ms   20,000: 805 ms
    n open elements (`<svg>` + `<g>` * n)       5,000: 178 ms; block elements 5,000: 38 ms
    n/2 open formatting elements, n/2 tags that reopen them all (`<b a1><p><b a2><p>...`)
                                                2,500: 247 ms and 170 MB   5,000: 2.8 s and 750 MB

The case of many open formatting elements, the last in the table, is the worst, but also the cheapest to
prevent. A parser keeps at most three equal formatting elements (WHATWG 13.2.4.3). So the parser reopens many
elements only if their attributes differ. The attributes of formatting elements contain no links, except those
of `a`. So on a page with many different formatting elements, all formatting elements except `a` are parsed
without their attributes (`without_formatting_attributes`).

`judge` examines every page, after its conversion to UTF-8. The examination takes some 20 us for a page of 45
kB, and more time per byte for pages above 64 KiB. Its verdicts are:

    SAFE        parse here: the number of tags and separators bounds the cost to 0.1 s in the worst case
                (6,300 tags that stay open; 500 formatting elements reopened by as many tags)
    STRIP       parse here, without the attributes of formatting elements
    APART       parse in the worker, under its CPU and memory limit: large, or suspicious
    EXCESSIVE   more tags, open elements, or attributes per tag than allowed: only a plain scan

A tag takes 700 bytes in the tree: the 450,000 tags of a 10 MB page take 330 MB.

A wrong suspicion does no harm, because APART gives the same result as SAFE. A page is called EXCESSIVE only
after a closer examination. Even the closer examination can be wrong, because only the parser knows which
elements an end tag closes. So the worker applies its limits to every page that it parses.
"""

import re
from collections.abc import Iterator
from enum import Enum
from itertools import pairwise

from crawler.config import ExtractConfig
from crawler.extract.survey import FORMATTING_NAMES, survey

# Maximum number of formatting elements that the parser may create by reopening them, at 0.42 us and 320 bytes
# each.
REOPENED_MAX = 250_000
# In a page with at most this number of tags, the cost of reopening is harmless. In the worst case, half of
# the tags stay open, and each of the other tags reopens them.
TAGS_HARMLESS = 1000
# The mean length in bytes of the attributes of a tag is at least this, if all their names differ. A blank and
# a name of two characters take 3 bytes. There are only some 4,000 such names, so tags with many attributes
# need longer names, and their mean is at least 3.4.
ATTRIBUTE_BYTES = 3
# In a page of up to this number of bytes, no tag can have enough attributes to cost 0.1 s.
ATTRIBUTES_HARMLESS_BYTES = 64 << 10
# Maximum number of comparisons of two attributes of one tag. At 2 ns each, they take 0.8 s.
ATTRIBUTE_PAIRS_MAX = 400_000_000
# Number of bytes between two searches for the end of a tag. If each tag has this number of bytes, 1 MiB of tags
# needs fewer than ATTRIBUTE_PAIRS_MAX comparisons.
_STRETCH_BYTES = 3 << 10
_TRIES_MAX = 16  # maximum number of possible tag ends examined in a row before skipping to the next stretch
# Maximum product of the numbers of open elements and tags: for each tag, the parser may examine all open
# elements, at 1.4 ns each (5 ns on a slow machine).
STEPS_MAX = 40_000_000

_SLASH = ord("/")
_TAG_BYTES_MEAN_MIN = 3
_PLAIN_TAG = re.compile(
    rb"""[^\s"'=/<>]+(?:[\s/]+(?:[^\s"'=/<>]+(?:\s*=\s*(?:"[^"]*"|'[^']*'|[^\s"'=<>]+))?)?)*+""", re.DOTALL
)
_SPELLING_BYTES = 400  # maximum length in bytes of a formatting tag that counts as plain
_EQUAL_OPEN_MAX = 3  # maximum number of equal formatting elements that are open, WHATWG 13.2.4.3
# Maximum number of open formatting elements without attributes: three of each kind, and one `a`.
_PLAIN_REOPENED = 3 * 12 + 1
_FORMATTING_NAME = re.compile(rb"(?:" + b"|".join(FORMATTING_NAMES) + rb")(?=[\t\n\f\r /])", re.IGNORECASE)
_TAG = re.compile(rb"</?[a-z][^\t\n\f\r />]*+")
_START = re.compile(rb"<[A-Za-z]")
_RAW_TEXT = re.compile(
    rb"<!--(?s:.*?)(?:-->|\Z)|<(script|style|textarea|title|xmp|iframe|noembed|noframes)\b(?s:.*?)(?:</\1|\Z)",
    re.IGNORECASE,
)
_ATTRIBUTE = re.compile(rb"""[\s/]*+[^\s/>][^\s/>=]*+(?:\s*+=\s*+(?:"[^"]*+"|'[^']*+'|[^\s>]*+))?+""")
_BLANKS = re.compile(rb"[\x00-\x20]++")
_BEFORE_VALUE = frozenset(b"=\t\n\f\r ")
# Elements that never stay open, or that are closed by the next element of their kind.
_NOT_NESTING = frozenset(
    b"area base br col embed hr img input link meta param source track wbr "
    b"p li dt dd option optgroup tr td th tbody thead tfoot colgroup rp rt".split()
)


class Judgement(Enum):
    """The ways to treat a page."""

    SAFE = "safe"
    STRIP = "strip"
    APART = "apart"
    EXCESSIVE = "excessive"


def judge(content: bytes, config: ExtractConfig) -> Judgement:
    """Return how to read `content`. The worker parses an APART page in the same way as a STRIP page."""
    size = len(content)
    if size <= _TAG_BYTES_MEAN_MIN * TAGS_HARMLESS:
        return Judgement.SAFE
    tags, end_tags, formatting = survey(content)
    # A page with more tags than `tags_max` is scanned without a tree: the scan takes a tenth of the parser's time.
    if tags - end_tags > config.tags_max:
        return Judgement.EXCESSIVE
    short_tags = _ends_tags(content, config.attributes_max * ATTRIBUTE_BYTES)
    if short_tags and tags <= TAGS_HARMLESS and size <= ATTRIBUTES_HARMLESS_BYTES:
        return Judgement.SAFE
    if not short_tags and _excessive_tag(content, config.attributes_max):
        return Judgement.EXCESSIVE
    # Assume that no start tag is closed, because an end tag does not necessarily close one.
    deep = (tags - end_tags) * tags > STEPS_MAX
    if deep and tags - 2 * end_tags > config.depth_max and open_elements(content) > config.depth_max:
        return Judgement.EXCESSIVE
    large = size > config.inline_bytes_max or tags > config.inline_tags_max
    if deep or large or (size > ATTRIBUTES_HARMLESS_BYTES and _may_compare(content)):
        return Judgement.APART
    if not _may_reopen(content, tags, formatting):
        return Judgement.SAFE
    return Judgement.STRIP if _PLAIN_REOPENED * tags <= REOPENED_MAX else Judgement.APART


def strip(content: bytes) -> bytes:
    """Return `content`. If the page may have many formatting elements, remove their attributes, except those of `a`."""
    tags, _, formatting = survey(content)
    return without_formatting_attributes(content) if len(formatting) * tags > REOPENED_MAX else content


def without_formatting_attributes(content: bytes) -> bytes:
    """Return the page without attributes on formatting elements, except on `a`."""
    kept = []
    at = 0
    for start in survey(content)[2]:
        if start > at and (name := _FORMATTING_NAME.match(content, start)):
            kept.append(content[at : name.end()])
            at = content.find(b">", name.end())
            if at < 0:
                return b"".join(kept)
    return b"".join([*kept, content[at:]])


def _may_reopen(content: bytes, tags: int, formatting: list[int]) -> bool:
    """Return whether reopening formatting elements might create more than REOPENED_MAX elements."""
    if tags <= TAGS_HARMLESS or len(formatting) * tags <= REOPENED_MAX:
        return False
    return _different(content, formatting) * tags > REOPENED_MAX


def _different(content: bytes, starts: list[int]) -> int:
    """Return an upper bound of the number of formatting elements that can be open: three for each different tag.

    Two tags are different if they are spelled differently. If a tag is not plain, it may continue after the
    `>` that seems to end it. In that case, the result is the number of formatting tags.
    """
    spellings = {content[start : start + _SPELLING_BYTES].partition(b">")[0] for start in starts}
    if max(map(len, spellings)) == _SPELLING_BYTES or not all(map(_PLAIN_TAG.fullmatch, spellings)):
        return len(starts)
    return min(len(starts), _EQUAL_OPEN_MAX * len(spellings))


def open_elements(content: bytes) -> int:
    """Return the largest number of elements open at once. An element is open until the next end tag of its name.

    Elements without contents (`br`) and elements that a following tag usually closes (`p`, `li`) are not
    counted.
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
    """Return the most attributes on a tag. Skip short tags, and stop at a tag with more than `enough`."""
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


def _excessive_tag(content: bytes, enough: int) -> bool:
    """Return whether a tag has more than `enough` attributes. This is fast for text and scripts with few blanks."""
    long = [part for part in content.split(b">") if len(part) > enough]
    return any(_separators(part) > enough for part in long) and most_attributes(content, enough) > enough


def _ends_tags(content: bytes, most: int) -> bool:
    """Return whether each run of `most` bytes contains a `>`. If so, no plain tag is longer than `most` bytes."""
    at = 0
    while len(content) - at >= most:
        at = content.rfind(b">", at, at + most) + 1
        if not at:
            return False
    return True


def _may_compare(content: bytes) -> bool:
    """Return whether the attributes of tags may require more than ATTRIBUTE_PAIRS_MAX comparisons.

    No tag extends past a position that `_sure_ends` yields, so each tag lies between two such positions.
    """
    pairs = 0
    for begin, end in pairwise([*_sure_ends(content), len(content)]):
        most = (end - begin) // ATTRIBUTE_BYTES
        if most > 2 * _STRETCH_BYTES // ATTRIBUTE_BYTES:
            most = min(most, _separators(content[begin:end]))
        pairs += most * most
    return pairs > ATTRIBUTE_PAIRS_MAX


def _sure_ends(content: bytes) -> Iterator[int]:
    """Yield 0, and then, about every `_STRETCH_BYTES`, the position of a `>` that is surely outside any quoted value.

    A quoted value begins after `=` and continues up to the next quote of the same kind. Look at the last `"`
    and the last `'` before a `>`. If neither of them stands after a `=` or a blank, the `>` is surely
    outside.
    """
    sure = tries = 0
    yield sure
    end = content.find(b">", _STRETCH_BYTES)
    while end >= 0:
        if _opens(content, content.rfind(b'"', sure, end)) or _opens(content, content.rfind(b"'", sure, end)):
            tries += 1
        else:
            yield end
            sure, tries = end, 0
        end = content.find(b">", end + (1 if 0 < tries < _TRIES_MAX else _STRETCH_BYTES))


def _opens(content: bytes, quote: int) -> bool:
    """Return whether a quote follows `=` or a blank, so it may begin a value. Position -1 means no quote."""
    return quote > 0 and content[quote - 1] in _BEFORE_VALUE


def _separators(part: bytes) -> int:
    """Return an upper bound of the number of attributes of any tag: the number of blanks, slashes and pairs of quotes."""
    quotes = part.count(b'"') + part.count(b"'")
    return len(_BLANKS.findall(part)) + part.count(b"/") + quotes // 2
