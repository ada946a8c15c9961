"""Finds the processes of a crawl whose folder or store is lost, so that no command leaves them out silently."""

from pathlib import Path

from crawler.crawl.directory import BEGUN, CrawlDirectory
from crawler.crawl.process_names import process_names
from crawler.errors import DamageError


def begun_names(directory: CrawlDirectory) -> list[str]:
    """Return the names of the processes of a crawl that is ready, even of those whose store or folder is lost."""
    names = set(directory.process_names())
    if directory.begun_names() - names:
        configured = process_names(directory.settings.config())
        names.update(name for name in configured if directory.has_begun(name))
    return sorted(names, key=lambda name: (len(name), name))


def is_lost_whole(folder: Path) -> bool:
    """Return whether a process has neither a store nor WARC files, so that nothing is left of its pages."""
    return not any(next(folder.glob(kept), None) is not None for kept in ("store/*", "warc/*.gz*"))


def check_for_loss(folder: Path) -> None:
    """Raise an error if a process has already run here but its store is gone, because a new store must not replace it.

    Raises:
        DamageError: the store is gone.
    """
    store = folder / "store"
    if store.exists() and any(store.iterdir()):
        return
    begun = folder.with_name(folder.name + BEGUN).exists()
    if begun or any(next(folder.glob(kept), None) is not None for kept in ("warc/*.gz*", "due/*.run")):
        raise DamageError(
            f"{store} is missing, although the crawl has begun; `crawler check --repair` rebuilds it from the other files"
        )
