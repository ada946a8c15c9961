"""Words for people: a number with its noun in singular or plural, and the name of a state or an outcome.

`several(1, "page", "have")` is "1 page has", and `several(2, "page", "have")` is "2 pages have".
"""

_SINGULAR_VERBS = {"are": "is", "have": "has", "were": "was"}
_PLURALS = {"copy": "copies", "process": "processes", "refresh": "refreshes", "try": "tries"}


def several(count: int, noun: str, verb: str = "") -> str:
    """Return a number, the noun and, if given, a verb that agrees with the number.

    Args:
        count: the number. It is written with commas between the thousands.
        noun: the noun in singular, which may follow adjectives.
        verb: the verb in plural.
    """
    if count == 1:
        verb = _SINGULAR_VERBS.get(verb, verb and f"{verb}s")
    else:
        rest, blank, last = noun.rpartition(" ")
        noun = f"{rest}{blank}{_PLURALS.get(last, f'{last}s')}"
    return f"{count:,} {noun}{' ' * bool(verb)}{verb}"


def words(name: str) -> str:
    """Return the name of a state, an outcome or a counter as words: `robots_denied` becomes "robots denied"."""
    return name.replace("_", " ")
