"""Test the file names of mirrors: no file is written outside the folder, and no page is lost."""

import contextlib
import os
import shutil
import subprocess
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import StoreError
from crawler.pages.formats import mirror


@pytest.mark.parametrize(
    ("url", "content_type", "path"),
    [
        ("http://site.example/", "text/html", "site.example/index.html"),
        ("http://site.example/a/", "text/html", "site.example/a/index.html"),
        ("http://site.example:8080/a", "text/html", "site.example_8080/a.html"),
        ("http://site.example/a.png", "image/png", "site.example/a.png"),
        ("http://site.example/a.HTM", "text/html", "site.example/a.HTM"),
        ("http://site.example/a?b=1/2", "text/plain", "site.example/a@b=1%2F2"),
        ("http://site.example/?b", "text/html", "site.example/index.html@b.html"),
        ("http://site.example/%C3%A4%20b", "text/plain", "site.example/ä b"),
        (
            "http://site.example/%2e%2e/%2e%2e/etc/passwd",
            "text/plain",
            "site.example/%2E%2E/%2E%2E/etc/passwd",
        ),
        ("http://site.example/..%2f..%2fx", "text/plain", "site.example/%2E.%2F..%2Fx"),
        ("http://site.example/a%00b%0Ac", "text/plain", "site.example/a%00b%0Ac"),
        ("http://site.example/a\\b:c", "text/plain", "site.example/a%5Cb%3Ac"),
        ("http://site.example/%FF", "text/plain", "site.example/%FF"),
        ("http://[::1]:80/x", "text/plain", "[__1]_80/x"),
        ("http://site.example/a//b/./c.", "text/plain", "site.example/a/b/%2E/c%2E"),
    ],
)
def test_paths_of_mirrored_pages(url: str, content_type: str, path: str) -> None:
    assert str(mirror.mirror_path(url, content_type)) == path


@given(st.text(max_size=80), st.sampled_from(["text/html", "text/plain"]))
def test_any_url_has_a_harmless_path(tail: str, content_type: str) -> None:
    path = mirror.mirror_path("http://site.example/" + tail, content_type)
    assert not path.is_absolute()
    assert path.parts[0] == "site.example" and len(path.parts) > 1
    for part in path.parts:
        assert part not in ("", ".", "..")
        assert not any(char in part for char in "/\\\0\n\r")
        assert len(part.encode()) <= 255


@pytest.mark.parametrize(
    ("tail", "path"),
    [
        (".git/config", "%2Egit/config"),
        ("%2egit/hooks/x", "%2Egit/hooks/x"),
        (".htaccess", "%2Ehtaccess"),
        ("a/.envrc", "a/%2Eenvrc"),
        ("HEAD", "%48EAD"),
        ("a/Desktop.ini", "a/%44esktop.ini"),
        ("autorun.inf", "%61utorun.inf"),
        ("x/conftest.py", "x/%63onftest.py"),
        ("nul", "%6Eul"),
        ("COM1.txt", "%43OM1.txt"),
        ("LPT%C2%B9.x", "%4CPT\u00b9.x"),
        ("conin$", "%63onin$"),
        ("console", "console"),
        ("a.url", "a%2Eurl"),
        ("b.Desktop", "b%2EDesktop"),
        ("-rf", "%2Drf"),
        ("%E2%80%AEgnp.exe", "%E2%80%AEgnp.exe"),
        ("%C2%9b31m", "%C2%9B31m"),
    ],
)
def test_names_that_programs_act_on_are_escaped(tail: str, path: str) -> None:
    """If `git status`, a file manager or a shell is used in the mirror, it must not run code of the site."""
    assert str(mirror.mirror_path(f"http://site.example/{tail}", "text/plain")) == f"site.example/{path}"


@pytest.fixture
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[mirror.MirrorPaths]:
    with contextlib.closing(mirror.MirrorPaths(tmp_path_factory.mktemp("paths") / "places")) as made:
        yield made


def test_git_finds_no_repository_in_a_mirror(tmp_path: Path, places: mirror.MirrorPaths) -> None:
    """If a stored site contains a git repository, plain or bare, git must not recognize it in the mirror."""
    for name in (
        "HEAD",
        "config",
        "objects/x",
        "refs/x",
        ".git/HEAD",
        ".git/config",
        ".git/objects/x",
        ".git/refs/x",
    ):
        path = mirror.claim(tmp_path, places, f"http://site.example/{name}", "text/plain")
        mirror.fill(tmp_path, path, (b"ref: refs/heads/main\n" if name.endswith("HEAD") else b"",))
    names = {path.name.lower() for path in tmp_path.rglob("*")}
    assert not names & {"head", ".git"}
    git = shutil.which("git")
    if git is not None:
        own = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tmp_path)}
        asked = [git, "-C", str(tmp_path / "site.example"), "rev-parse", "--git-dir"]
        found = subprocess.run(asked, check=False, capture_output=True, text=True, env=own)
        assert found.returncode != 0, found


def test_long_names_and_paths_are_shortened() -> None:
    long = mirror.mirror_path("http://site.example/" + "a" * 3000 + ".html", "text/html")
    other = mirror.mirror_path("http://site.example/" + "a" * 3001 + ".html", "text/html")
    assert long != other
    assert long.suffix == ".html" and len(long.name) <= 255
    deep = mirror.mirror_path("http://site.example/" + "abcde/" * 1300 + "x.png", "image/png")
    assert len(str(deep)) < 100 and deep.suffix == ".png"


def test_collisions_keep_every_page(tmp_path: Path, places: mirror.MirrorPaths) -> None:
    """No page is lost if a file and a folder need the same path, or if two URLs have the same path.

    Paths that differ only in case or normalization count as the same. The copy of a mirror on macOS or
    Windows must not lose a page either.
    """
    names = ["a", "a/b", "a/b/c", "x%3Fy", "x%3fy", "d/e", "d", "A%2FB", "a@1", "a?1"]
    names += ["Page", "page", "PAGE/x", "E/f", "e/F", "Stra%C3%9Fe", "STRASSE", "D"]
    names += ["%C3%A9", "e%CC%81", "%C3%89", "%E2%84%AA", "k", "K/x"]  # é in NFC and NFD, É, the Kelvin sign
    for name in names:
        path = mirror.claim(tmp_path, places, "http://site.example/" + name, "text/plain")
        mirror.fill(tmp_path, path, (name.encode(),))
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(path.read_bytes() for path in files) == sorted(name.encode() for name in names)
    folded = {unicodedata.normalize("NFC", str(path)).casefold(): path for path in files}
    folders = {unicodedata.normalize("NFC", str(path.parent)).casefold() for path in files}
    assert len(folded) == len(files) and not folded.keys() & folders


def test_no_link_leads_out_of_the_folder(tmp_path: Path, places: mirror.MirrorPaths) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    folder = tmp_path / "mirror"
    (folder / "site.example").mkdir(parents=True)
    (folder / "site.example" / "x").symlink_to(outside / "victim")
    path = mirror.claim(folder, places, "http://site.example/x", "text/plain")
    mirror.fill(folder, path, (b"data",))
    assert list(outside.iterdir()) == []
    with pytest.raises(StoreError):
        mirror.fill(folder, "site.example/x", (b"data",))


def test_look_ups_follow_redirects_and_stop_in_loops(tmp_path: Path) -> None:
    places = mirror.MirrorPaths(tmp_path / "places")
    largest = (1 << 64) - 1
    places.add(largest, "h/a.html")
    places.add_redirect(1, 2)
    places.add_redirect(2, largest)
    places.add_redirect(3, 3)
    places.add_redirect(4, 5)
    places.add_redirect(largest, 3)  # this has no effect, because the URL has a page
    places.finish()
    assert [places.of(number) for number in (largest, 1, 2, 3, 4, 6)] == ["h/a.html"] * 3 + ["", "", ""]
    places.close()


@pytest.mark.parametrize(
    ("folder", "path", "url"),
    [
        ("h", "h/a b.html", "a%20b.html"),
        ("h/x", "h/a%2Fb?.html", "../a%252Fb%3F.html"),
        ("h/x", "g/ä.png", "../../g/%C3%A4.png"),
        ("h", "h/#", "%23"),
    ],
)
def test_relative_urls_between_mirrored_pages(folder: str, path: str, url: str) -> None:
    assert mirror.relative_url(folder, path) == url


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        (
            "<!doctype html><html lang=x><head><title>",
            '<!doctype html><html lang=x><head><meta charset="big5"><title>',
        ),
        ("<!-- c --><!DOCTYPE html>\n<title>", '<!-- c --><!DOCTYPE html>\n<meta charset="big5"><title>'),
        ("<header>x", '<meta charset="big5"><header>x'),
        ("", '<meta charset="big5">'),
    ],
)
def test_an_encoding_from_the_header_is_written_into_the_page(page: str, expected: str) -> None:
    assert mirror.with_charset(page.encode(), "big5").decode() == expected
