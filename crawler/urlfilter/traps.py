"""Traps that show in the path alone (`fetch-behaviour.md`, section 12; Heritrix' decide rules).

A broken relative link on a page that answers under any path makes paths
without end: `/a/a/a/...`, `/en/shop/en/shop/...`. Two rules bound them: the
number of segments (TooManyPathSegments), and a unit of one or several
segments that comes more often in a row than allowed (PathologicalPath, whose
pattern matches units of several segments too).

Segments are what stands between slashes, empty ones among them; nothing after
the last slash is no segment: `/a//b/` has the three segments `a`, ``, `b`.
Both functions are pure and look at the path of a request form, in time
proportional to its length.
"""

PATH_SEGMENTS = "path_segments"
REPEATED_SEGMENTS = "repeated_segments"
_UNIT_MAX = 6  # segments; more cannot come three times within 20 segments, and it bounds the work


def trap(url: str, *, segments_max: int = 20, repeats_max: int = 2) -> str:
    """The name of the trap rule that a request form falls under, "" if none."""
    path = url[url.index("/", 8) :].partition("?")[0]
    count = path.count("/")
    if count <= repeats_max and count <= segments_max:  # too short for either rule
        return ""
    segments = path.split("/")[1:]
    if not segments[-1]:
        segments.pop()
    if len(segments) > segments_max:
        return PATH_SEGMENTS
    if len(set(segments)) < len(segments) and repeats(segments, repeats_max):
        return REPEATED_SEGMENTS
    return ""


def repeats(segments: list[str], repeats_max: int) -> bool:
    """Whether a unit of up to 6 segments stands more than `repeats_max` times in a row."""
    for unit in range(1, min(_UNIT_MAX, len(segments) // (repeats_max + 1)) + 1):
        run = 0  # positions in a row that equal the one a unit before
        for position in range(unit, len(segments)):
            run = run + 1 if segments[position] == segments[position - unit] else 0
            if run == unit * repeats_max:
                return True
    return False
