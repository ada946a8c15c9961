"""Puts the interpreted kernels in the place of the installed ones, for a while."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from crawler.due import eliminator, kernels, known_set, memory_runs, merging, runs
from tests.forms import installed, interpreted

KERNELS = {"installed": kernels, "interpreted": interpreted("crawler.due.kernels")}
SPLIT_RUN = {
    "installed": installed("crawler.due.split_run"),
    "interpreted": interpreted("crawler.due.split_run"),
}
PENDING_SET = {
    "installed": installed("crawler.due.pending_set"),
    "interpreted": interpreted("crawler.due.pending_set"),
}


@contextmanager
def using(form: str) -> Iterator[None]:
    """Within the context the DUE runs on kernels of that form."""
    with (
        mock.patch.object(known_set, "kernels", KERNELS[form]),
        mock.patch.object(memory_runs, "kernels", KERNELS[form]),
        mock.patch.object(merging, "kernels", KERNELS[form]),
        mock.patch.object(runs, "kernels", KERNELS[form]),
        mock.patch.object(memory_runs, "SplitRun", SPLIT_RUN[form].SplitRun),
        mock.patch.object(eliminator, "PendingSet", PENDING_SET[form].PendingSet),
    ):
        yield
