"""Test the kinds of files that are requested and stored (`--accept`, `--reject`)."""

import doctest

import pytest

from crawler.urls import file_kinds
from crawler.urls.file_kinds import Kinds

# (accept, reject, path, media type of the answer, whether the URL is requested, whether the answer is stored)
CASES = [
    ([], [], "/a.zip", "application/zip", True, True),
    (["pdf"], [], "/a.PDF?v=1", "application/pdf", True, True),
    (["*.pdf"], [], "/a.pdf", "text/plain", True, True),
    (["pdf"], [], "/list", "text/html", True, False),
    (["pdf"], [], "/list.html", "text/html", True, False),
    (["pdf"], [], "/a.jpg", "image/jpeg", False, False),
    (["pdf"], [], "/wiki/A.B", "text/html", True, False),
    (["pdf"], [], "/a.php", "text/html", True, False),
    (["image/*"], [], "/x", "image/png", True, True),
    (["image/*"], [], "/x.png", "image/png", True, True),
    (["image/*"], [], "/x.zip", "application/zip", False, False),
    (["png"], [], "/x.docx", "application/zip", False, False),
    (["png"], [], "/x.html.gz", "application/gzip", False, False),
    (["png"], [], "/x.woff2", "font/woff2", False, False),
    (["audio/*"], [], "/x.OGG", "audio/ogg", True, True),
    ([], ["audio/*"], "/x.ogg", "audio/ogg", False, False),
    (["png"], [], "/gz", "text/html", True, False),
    (["text/html"], [], "/x", "text/html", True, True),
    (["text/html"], [], "/x", "application/pdf", True, False),
    (["report-*.csv"], [], "/report-7.csv", "text/csv", True, True),
    (["report-*.csv"], [], "/other.csv", "text/csv", False, False),
    ([], ["image/*"], "/x.png", "image/png", False, False),
    ([], ["image/*"], "/x", "image/png", True, False),
    ([], ["image/*", "iso"], "/x.iso", "text/html", False, False),
    (["pdf"], ["draft*"], "/draft1.pdf", "application/pdf", False, False),
]


@pytest.mark.parametrize(("accept", "reject", "path", "kind", "asked", "stored"), CASES)
def test_which_kinds_are_requested_and_stored(
    accept: list[str], reject: list[str], path: str, kind: str, asked: bool, stored: bool
) -> None:
    wanted = Kinds(accept, reject)
    url = f"http://h.test/dir.pdf{path}"
    assert wanted.may_ask(url) == asked
    assert wanted.keeps(url, kind) == stored
    assert bool(wanted) == bool(accept or reject)


def test_examples() -> None:
    assert doctest.testmod(file_kinds) == (0, 5)
