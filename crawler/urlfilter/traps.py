# cython: annotation_typing=False
"""Recognizes traps by the path of a URL alone (`urlfilter/README.md`, "Traps"; Heritrix's decide rules).

If a site answers any path with the same page, and the page has a wrong relative link, the link produces
endless paths: `/a/a/a/...`, `/en/shop/en/shop/...`.

Segments are separated by slashes and may be empty. If a path ends with a slash, there is no segment after
this slash: `/a//b/` has the three segments `a`, ``, `b`. All functions are pure, read the path of a request
form, and take time proportional to the length of the path. A limit of 0 disables its rule. Every path below a
trap is also a trap, so the directory usually determines the verdict.
"""

import cython

COMPILED: bool = cython.compiled

PATH_SEGMENTS = "path_segments"
REPEATED_SEGMENTS = "repeated_segments"
# maximum number of segments in a unit; a longer unit cannot occur three times within 20 segments
_UNIT_MAX = 6


def trap(url: str, segments_max: int = 20, repeats_max: int = 2) -> str:
    """Return the name of the trap rule that rejects a request form, or "" if none does."""
    return _rule(_segments(url), segments_max, repeats_max)


def directory_trap(directory: str, segments_max: int = 20, repeats_max: int = 2) -> str | None:
    """Return the rule that rejects all files of a directory, "" if all are accepted, None if it depends on the file.

    `directory` is a URL as it is requested; it ends with a slash. The URL of a file has one segment more than
    its directory, or the same number of segments if the file's name is empty.
    """
    segments = _segments(directory)
    rule = _rule(segments, segments_max, repeats_max)
    room = not segments_max or len(segments) < segments_max
    if rule:
        return rule if room or rule == PATH_SEGMENTS else None
    # If all segments of the path differ, one more segment cannot complete the third occurrence of a unit.
    settled = not repeats_max or (repeats_max >= 2 and len(set(segments)) == len(segments))
    return "" if room and settled else None


def _segments(url: str) -> list[str]:
    segments = url[url.index("/", 8) + 1 :].partition("?")[0].split("/")
    if not segments[-1]:
        segments.pop()
    return segments


def _rule(segments: list[str], segments_max: int, repeats_max: int) -> str:
    if segments_max and len(segments) > segments_max:
        return PATH_SEGMENTS
    if repeats_max and len(set(segments)) < len(segments) and repeats(segments, repeats_max):
        return REPEATED_SEGMENTS
    return ""


def repeats(segments: list[str], repeats_max: int) -> bool:
    """Return whether a unit of up to 6 segments occurs more than `repeats_max` times in a row."""
    for unit in range(1, min(_UNIT_MAX, len(segments) // (repeats_max + 1)) + 1):
        run = 0  # number of segments in a row, each of which equals the segment `unit` places before it
        for position in range(unit, len(segments)):
            run = run + 1 if segments[position] == segments[position - unit] else 0
            if run == unit * repeats_max:
                return True
    return False
