"""Compares the notes of shipped segments (`pages/shipping.py`) with the objects in object storage.

The objects of each storage are listed, which takes one request for a thousand objects. Their content is not read.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from crawler.errors import CrawlerError
from crawler.pages import shipping
from crawler.storage.object_store import ObjectStore
from crawler.wording import several


class ObjectProblem(NamedTuple):
    """A problem of object storage. `segment` is the local file that can be shipped again, or None."""

    message: str
    segment: Path | None = None


def object_problems(folders: Iterable[Path], ship: str) -> Iterator[ObjectProblem]:
    """Yield the problems of the storages that the notes in `folders` name, and of the configured storage `ship`."""
    places: dict[str, list[tuple[Path, shipping.ShippingNote, bool]]] = {ship.rstrip("/"): []} if ship else {}
    for shipped in shipping.shipped(folders):
        places.setdefault(shipped[1].url.rpartition("/")[0], []).append(shipped)
    for url, notes in places.items():
        try:
            sizes = ObjectStore(url, create=False).sizes()
        except CrawlerError as error:
            only_there = sum(not here for _, _, here in notes)
            kept = f"; {several(only_there, 'WARC file', 'are')} kept only there" if only_there else ""
            yield ObjectProblem(f"{error}{kept}")
            continue
        for path, note, here in notes:
            waits = here and note.changed  # the next `crawler ship` replaces the object
            if not waits and (size := sizes.get(path.name)) != note.length:
                what = "is missing" if size is None else f"has {size:,} bytes instead of {note.length:,}"
                yield ObjectProblem(
                    f"{note.url}: {what} in object storage{_cure(here)}", path if here else None
                )


def _cure(here: bool) -> str:
    if here:
        return "; `crawler check --repair`, then `crawler ship` copy the local file again"
    return ", and the local file was deleted; bring the object back from a backup or an earlier version"


def ship_again(problem: ObjectProblem) -> str:
    """Delete the note of a segment whose object is damaged, so that the segment is shipped again; return a line."""
    assert problem.segment is not None
    problem.segment.with_name(problem.segment.name + shipping.NOTE).unlink()
    return f"{problem.segment}: is copied to object storage again by the next `crawler ship`"
