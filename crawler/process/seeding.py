"""The way of the seeds from their pieces to the frontier: one change after the other.

command line, file, configuration --> crawl/seeds.py: canonical, in pieces
    one process, or a node         Seeds                     every seed is a link like any other
    several under a supervisor     SeedFile, read by all     each takes its own; the scope learns all first
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial

from crawler.process.stages import Stages
from crawler.storage.commit import Change, Maker

Pieces = Iterable[Sequence[str]]


def seed_changes(stages: Stages, pieces: Pieces, *, shared: bool) -> Iterator[Maker]:
    """What makes the changes that bring canonical seeds to the frontier, in order.

    `shared`: all processes read the same pieces, which can be read more than once.
    The scope must span them all before anything is fetched, else links would be dropped.
    """
    if shared and stages.config.crawl.scope != "any":
        yield partial(_widen, stages, pieces)
    for urls in pieces:
        own = _own(stages, urls) if shared else urls
        if own:
            yield partial(stages.admission.seeds, own)


def _widen(stages: Stages, pieces: Pieces) -> Generator[None, None, Change]:
    change = Change()
    for urls in pieces:
        stages.learned.widen(change, urls)
        yield
    return change


def _own(stages: Stages, urls: Sequence[str]) -> list[str]:
    """Those of hosts that this process owns."""
    places = stages.topology.partition.split(stages.fingerprinter.fingerprints(urls))
    return [urls[place] for place in places.get(stages.name, [])]
