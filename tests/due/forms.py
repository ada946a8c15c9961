"""Temporarily replaces the installed kernels of the DUE by the interpreted ones."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from crawler.due import eliminator, known_set, merging, runs
from tests.forms import installed, interpreted

SORTING = {"installed": installed("crawler.due.sorting"), "interpreted": interpreted("crawler.due.sorting")}
ELIAS_FANO = {
    "installed": installed("crawler.due.elias_fano"),
    "interpreted": interpreted("crawler.due.elias_fano"),
}
PENDING_SET = {
    "installed": installed("crawler.due.pending_set"),
    "interpreted": interpreted("crawler.due.pending_set"),
}


@contextmanager
def using(form: str) -> Iterator[None]:
    """Let the DUE use the installed or the interpreted kernels within a `with` statement."""
    with (
        mock.patch.object(known_set, "sorting", SORTING[form]),
        mock.patch.object(merging, "sorting", SORTING[form]),
        mock.patch.object(runs, "sorting", SORTING[form]),
        mock.patch.object(runs, "elias_fano", ELIAS_FANO[form]),
        mock.patch.object(eliminator, "PendingSet", PENDING_SET[form].PendingSet),
    ):
        yield
