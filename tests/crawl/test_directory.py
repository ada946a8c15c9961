"""Test the crawl directory: its seed, its saved configuration, and the detection of lost files."""

import hashlib
import json
import os
import stat
from operator import attrgetter
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest

from crawler.config import Config, convert
from crawler.crawl import directory as module
from crawler.crawl.directory import SEED_BYTES, CrawlDirectory
from crawler.crawl.saved_settings import SavedSettings
from crawler.errors import DamageError, DirectoryError, StoreError

SEED = bytes(range(16))
SECRET = {
    "identity": {"headers": ["Authorization: Basic eDp5", "X-Who: me"]},
    "override": [{"match": "a.org", "headers": ["Cookie: a=b"]}],
}


@pytest.fixture
def crawl(tmp_path: Path) -> CrawlDirectory:
    made = CrawlDirectory(tmp_path / "deep" / "crawl")
    made.create(SEED)
    return made


def test_a_directory_is_created_once_and_keeps_its_seed(crawl: CrawlDirectory) -> None:
    assert crawl.exists() and crawl.seed() == SEED
    crawl.require()
    crawl.create()
    crawl.create(SEED)
    assert crawl.seed() == SEED
    with pytest.raises(DirectoryError, match="different secret"):
        crawl.create(bytes(16))
    assert stat.S_IMODE((crawl.path / "seed").stat().st_mode) == 0o600
    assert crawl.crawl_id() == hashlib.blake2b(SEED, digest_size=8, person=b"crawl id").hexdigest()


def test_a_random_seed_is_drawn_by_default(tmp_path: Path) -> None:
    one, two = CrawlDirectory(tmp_path / "one"), CrawlDirectory(tmp_path / "two")
    assert not one.exists()
    with pytest.raises(DirectoryError, match="no crawl here"):
        one.require()
    one.create()
    two.create()
    assert len(one.seed()) == SEED_BYTES and one.seed() != two.seed()


@pytest.mark.parametrize(
    ("text", "said"),
    [("00" * 15, "15 bytes; expected 16"), ("zz" * 16, "cannot be read"), (None, "cannot be read")],
)
def test_an_invalid_seed_is_rejected(crawl: CrawlDirectory, text: str | None, said: str) -> None:
    (crawl.path / "seed").unlink()
    if text is not None:
        (crawl.path / "seed").write_text(text)
    with pytest.raises(DirectoryError, match=said):
        crawl.seed()


def test_a_directory_that_cannot_be_created_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryError, match="file: cannot be created: File exists"):
        CrawlDirectory(tmp_path / "file").create()
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)
    with pytest.raises(DirectoryError, match="no permission to write there"):
        CrawlDirectory(tmp_path / "new").create()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(13, DirectoryError), (1, DirectoryError), (30, DirectoryError), (28, StoreError), (5, StoreError)],
)
def test_missing_permissions_are_not_reported_as_a_failing_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[Exception]
) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise StoreError("cannot write") from OSError(number, os.strerror(number))

    monkeypatch.setattr(module, "atomic_write", fails)
    with pytest.raises(kind) as raised:
        CrawlDirectory(tmp_path / "crawl").create()
    assert type(raised.value) is kind


def test_processes_with_a_store_are_listed_by_number(crawl: CrawlDirectory) -> None:
    assert crawl.process_names() == []
    for name in ("p10", "p2", "p0"):
        (crawl.process(name) / "store").mkdir(parents=True)
    (crawl.path / "other").mkdir()
    assert crawl.process_names() == ["p0", "p2", "p10"]


def test_a_process_counts_as_begun_even_if_its_folder_is_lost(crawl: CrawlDirectory) -> None:
    assert not crawl.has_begun("p0")
    crawl.note_state("p0", 0)
    assert crawl.has_begun("p0") and not crawl.has_begun("p1")
    crawl.forget_begun("p0")
    crawl.forget_begun("p0")
    assert not crawl.has_begun("p0")


@pytest.mark.parametrize("damage", [b"", b"7", b"7 00000000\n", b"\xff\xff \xff", b"8 %08x\n" % crc32(b"7")])
def test_a_damaged_state_number_is_ignored(crawl: CrawlDirectory, damage: bytes) -> None:
    """If a damaged state number were used, an intact store would be refused."""
    assert crawl.state("p0") == 0
    crawl.note_state("p0", 6)
    crawl.note_state("p0", 7)
    assert crawl.state("p0") == 7
    (crawl.path / "p0.begun").write_bytes(damage)
    assert crawl.has_begun("p0") and crawl.state("p0") == 0


def test_credentials_are_saved_in_a_separate_file(crawl: CrawlDirectory) -> None:
    config = convert(SECRET)
    crawl.settings.save(config)
    assert "Basic" not in crawl.settings.file.read_text() and "a=b" not in crawl.settings.file.read_text()
    assert stat.S_IMODE(crawl.settings.credentials_file.stat().st_mode) == 0o600
    kept = convert(crawl.settings.load())
    assert kept.identity.headers == config.identity.headers
    assert kept.override[0].headers == config.override[0].headers
    crawl.settings.save(Config())
    assert (
        not crawl.settings.credentials_file.exists() and convert(crawl.settings.load()).identity.headers == ()
    )


def test_invalid_credentials_are_rejected_and_unreadable_ones_ignored(
    crawl: CrawlDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    crawl.settings.save(convert(SECRET))
    crawl.settings.credentials_file.write_text("{")
    with pytest.raises(DirectoryError, match="credentials: cannot be read"):
        crawl.settings.load()

    def forbidden(self: Path) -> bytes:
        if self == crawl.settings.credentials_file:
            raise PermissionError
        return real(self)

    real = Path.read_bytes
    monkeypatch.setattr(SavedSettings, "_problem", lambda self: "")
    monkeypatch.setattr(Path, "read_bytes", forbidden)
    assert convert(crawl.settings.load()).identity.headers == ("X-Who: me",)


def test_the_hosts_of_seeds_are_saved_with_the_settings(crawl: CrawlDirectory) -> None:
    crawl.settings.save(convert({"crawl": {"depth": 3}}))
    crawl.settings.note_places(["a.org", 'b"\n.org'])
    assert crawl.settings.places() == ["a.org", 'b"\n.org']
    crawl.settings.save(convert(crawl.settings.load()))
    assert crawl.settings.places() == ["a.org", 'b"\n.org'], "a change of settings keeps the hosts of seeds"
    assert convert(crawl.settings.load()).crawl.depth == 3
    text = crawl.settings.file.read_text()
    crawl.settings.file.write_text(text.replace('["a.org"', '["a.org'))
    assert crawl.settings.places() == []


def test_a_truncated_settings_file_is_rejected(crawl: CrawlDirectory) -> None:
    """A truncated crawl.toml must not be read as a short configuration with default politeness and no seed hosts."""
    crawl.settings.save(convert({"crawl": {"depth": 3}}))
    crawl.settings.note_places(["a.org"])
    assert crawl.settings.renew() == ""
    lines = crawl.settings.file.read_text().splitlines(keepends=True)
    crawl.settings.file.write_text("".join(lines[:-1]))
    assert crawl.settings.places() == []
    with pytest.raises(DamageError, match="cut short.*check --repair"):
        crawl.settings.load()
    for name in ("p0", "p1"):
        crawl.note_state(name, 0)
    (crawl.process("p0") / "store").mkdir(parents=True)
    assert "has the defaults" in crawl.settings.renew()
    assert convert(crawl.settings.load()).crawl.processes == 2, "the number of processes that have begun"
    assert crawl.settings.renew() == "" and crawl.settings.places() == []


def test_a_settings_file_of_the_user_needs_no_end_mark(crawl: CrawlDirectory) -> None:
    crawl.settings.file.write_text("[crawl]\ndepth = 4\n")
    assert convert(crawl.settings.load()).crawl.depth == 4 and crawl.settings.renew() == ""
    crawl.settings.file.write_text("")
    assert crawl.settings.load() == {}


@pytest.mark.parametrize("stores", [1, 3])
def test_a_missing_file_counts_as_lost_after_a_run(crawl: CrawlDirectory, stores: int) -> None:
    for number in range(stores):
        (crawl.process(f"p{number}") / "store").mkdir(parents=True)
    assert crawl.settings.load() == {}, "no run has ended yet"
    crawl.save_report({"pages": 1})
    assert json.loads(crawl.report_file.read_text()) == {"pages": 1}
    with pytest.raises(DamageError, match="missing.*check --repair"):
        crawl.settings.load()
    crawl.settings.renew()
    assert convert(crawl.settings.load()).crawl.processes == stores


# -- a directory that an untrusted user made


def ready_directory(folder: Path) -> CrawlDirectory:
    made = CrawlDirectory(folder)
    made.create(SEED)
    for place in ("p0/store", "p0/warc", "p0/due", "other"):
        (folder / place).mkdir(parents=True)
    (folder / "p0/warc/1.warc.gz").write_bytes(b"x")
    return made


def link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


NAMES = (
    "crawler.log",
    "crawl.toml",
    "credentials",
    "pages.jsonl",
    "report.json",
    "journal.json",
    "p0/node.lock",
)
DEEP = ("p0/store/LOCK", "p0/warc/2.warc.gz", "p0/due/links.log")


@pytest.mark.parametrize("make", [link, os.mkfifo])
@pytest.mark.parametrize("name", [*NAMES, *DEEP])
def test_links_and_pipes_in_place_of_files_are_refused(tmp_path: Path, make: Any, name: str) -> None:
    """Regression: the crawler wrote through a link `crawler.log`, and `status` waited forever for a pipe `crawl.toml`."""
    ready_directory(tmp_path)
    make(tmp_path / name)
    for use in ("exists", "require", "create", "settings.load", "settings.load_former"):
        with pytest.raises(DirectoryError, match=f"{name} is a (symbolic link|pipe)"):
            attrgetter(use)(CrawlDirectory(tmp_path))()


@pytest.mark.parametrize("name", ["crawl.toml", "seed", "crawler.log"])
def test_links_and_pipes_are_refused_before_a_crawl_has_begun(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    for use in ("create", "settings.load"):
        with pytest.raises(DirectoryError, match="is a pipe"):
            attrgetter(use)(CrawlDirectory(tmp_path))()


def test_folders_of_a_process_may_be_on_other_disks(tmp_path: Path) -> None:
    """Only folders of processes and the subfolders of these may be links, and the targets of links are examined.

    A linked `mirror` is refused.
    """
    ready_directory(tmp_path / "crawl")
    disk = tmp_path / "disk"
    (disk / "p1/store").mkdir(parents=True)
    (disk / "warc").mkdir()
    (tmp_path / "crawl/p1").symlink_to(disk / "p1")
    (tmp_path / "crawl/p1/warc").symlink_to(disk / "warc")
    link(tmp_path / "crawl/other/link")  # links in folders that do not belong to a process are ignored
    assert CrawlDirectory(tmp_path / "crawl").exists()
    os.mkfifo(disk / "warc/1.warc.gz")
    with pytest.raises(DirectoryError, match="p1/warc/1.warc.gz is a pipe"):
        CrawlDirectory(tmp_path / "crawl").exists()
    (disk / "warc/1.warc.gz").unlink()
    (tmp_path / "crawl/mirror").symlink_to(disk)
    with pytest.raises(DirectoryError, match="mirror is a symbolic link"):
        CrawlDirectory(tmp_path / "crawl").exists()
