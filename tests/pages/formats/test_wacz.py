"""Test that a WACZ file is complete and consistent, and that its index finds the records."""

import hashlib
import io
import json
import zipfile
from pathlib import Path

import pytest
from warcio.archiveiterator import ArchiveIterator

from crawler.errors import UsageError
from crawler.pages.formats import wacz
from crawler.pages.formats.rows import known_rows
from tests.pages.formats.support import ALL, URL, small_site
from tests.pages.support import START


def test_wacz_is_complete_and_consistent(tmp_path: Path) -> None:
    path = tmp_path / "crawl.wacz"
    archives = [small_site(tmp_path).cache]
    rows = [
        known.row
        for known in known_rows(archives, ALL)
        if wacz.is_page(known.row, known.flags) and known.capture
    ]
    rows[0]["title"] = "T"
    count = wacz.write_wacz(archives, path, ALL, rows, now=START)
    assert count == 6
    with zipfile.ZipFile(path) as package:
        assert package.testzip() is None
        listing = json.loads(package.read("datapackage.json"))
        digest = json.loads(package.read("datapackage-digest.json"))
        assert digest["hash"] == "sha256:" + hashlib.sha256(package.read("datapackage.json")).hexdigest()
        assert listing["profile"] == "data-package" and listing["wacz_version"] == "1.1.1"
        for resource in listing["resources"]:
            data = package.read(resource["path"])
            assert resource["bytes"] == len(data)
            assert resource["hash"] == "sha256:" + hashlib.sha256(data).hexdigest()
        archive = package.getinfo("archive/data.warc.gz")
        assert archive.compress_type == zipfile.ZIP_STORED
        data = package.read("archive/data.warc.gz")
        lines = package.read("indexes/index.cdx").splitlines(keepends=True)
        pages = [json.loads(line) for line in package.read("pages/pages.jsonl").splitlines()]
    assert lines == sorted(lines) and len(lines) == 6
    for line in lines:
        fields = json.loads(line.split(b" ", 2)[2])
        [record] = ArchiveIterator(io.BytesIO(data[int(fields["offset"]) :][: int(fields["length"])]))
        assert record.rec_headers.get_header("WARC-Target-URI") == fields["url"]
        assert (record.rec_type == "revisit") == (fields["mime"] == "warc/revisit")
    assert pages[0]["format"] == "json-pages-1.0"
    assert [(page["url"], page["title"], page.get("seed")) for page in pages[1:]] == [
        (URL + "a", "T", True),
        (URL + "c", URL + "c", None),
    ]


def test_wacz_names_a_path_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"crawl\.wacz: cannot write: No such file"):
        wacz.write_wacz([], tmp_path / "missing" / "crawl.wacz", ALL, [], now=START)
