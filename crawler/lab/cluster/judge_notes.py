"""The rules of the judge, and the violations found in a run."""

from collections import Counter

# Rule -> what has happened if it is broken.
RULES = {
    "lost": "a page was never answered although its parent, or the sitemap that lists it, was answered (pages that "
    "were given up or exceed a budget are exempt); or a sitemap was not requested although its host answered",
    "unstored": "an answered page is in no WARC file",
    "unrendered": "the archive lacks what a browser showed of a page, or the data that the page showed",
    "stored twice": "a version of a page is in the WARC files more than once",
    "torn": "a WARC file cannot be read to its end",
    "fetched too often": "more fetches were repeated than kills can have interrupted",
    "impolite": "a host received a request during an answer, or before its gap had passed",
    "two owners": "two processes sent requests to a host; or two of one name did so together for too long",
    "forbidden": "a page was requested that robots.txt forbids",
    "unfair rate": "the crawl made more requests than its rate allows",
    "stale": "a changing page was not requested again for a long time",
    "stalled": "all requests stopped for a long time and then continued",
    "no end": "a finite crawl did not end",
    "left behind": "a process waited for others that had ended, although no fault kept the news of the end from it",
    "miscounted": "a counting law did not hold when a process ended",
    "bug": "an unexpected exception",
    # acts of the operator and limits (`act_rules.py`)
    "over a limit": "a page was requested that is beyond every limit on depth or pages per host so far",
    "not heeded": "a blocked host or a withdrawn page was requested, or a withdrawn copy is still in a WARC file",
    "unheard": "a known page was not requested again after a signal",
    "gave up": "a page that always fails was requested too rarely or too often",
    # the stores (`stored_rules.py`)
    "misfiled": "a capture does not lead to its record in the archive, or a revisit not to a response with its payload",
    "misrecorded": "the depth of a page is more than that of a page that links to it plus one, or less than the shortest "
    "path from the seed; or the target of a redirect is deeper than the redirect, or has a wrong number of hops",
}
TRIES = 3  # a page may be given up after this many failed answers


class Notes:
    """The number of violations of each rule, with an example of each."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.examples: dict[str, str] = {}

    def add(self, rule: str, example: str, count: int = 1) -> None:
        assert rule in RULES, rule
        if count:
            self.found[rule] += count
            self.examples.setdefault(rule, example)
