"""Test the README pages in the code folders: every folder has one, and every citation of a page resolves."""

import re
import tomllib
from functools import cache
from itertools import product
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "crawler"
# All texts in which citations are checked.
TEXTS = sorted(
    path
    for folder, kind in product(
        ("crawler", "config", "scripts", "tests"), ("*.py", "*.pxd", "*.toml", "*.md")
    )
    for path in (ROOT / folder).rglob(kind)
    if "data" not in path.relative_to(ROOT).parts
) + [ROOT / "README.md", ROOT / "CHANGELOG.md"]
PAGES = sorted(PACKAGE.rglob("*.md"))

CITATION = re.compile(
    r"(?P<page>(?:[\w.-]+/)*[A-Z]+\.md)`?(?P<heads>(?:(?:,| and)\s+(?:#\s+)?\"[A-Z][^\"`]*\")*)"
)
OTHER_PAGE = re.compile(r"`(?:[\w-]+/)*[a-z][\w-]*\.md`")
NUMBERED = re.compile(r"\.md`?,? sections? \d")


def _relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def _headings(page: Path) -> set[str]:
    return set(re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE))


def _find(name: str, beside: Path) -> Path | None:
    """Return the page that `name` refers to in a text of the folder `beside`.

    The name is a path relative to the package, to the folder `beside` or to the project.
    """
    return next((base / name for base in (PACKAGE, beside, ROOT) if (base / name).is_file()), None)


def unresolved(text: str, beside: Path) -> list[str]:
    """Return the broken citations in `text`, one per line."""
    wrong = [
        f"{match} is not the name of a page: pages have names in capitals, such as README.md"
        for match in OTHER_PAGE.findall(text)
    ]
    wrong += [
        f"cites a section by its number instead of its heading: {match}" for match in NUMBERED.findall(text)
    ]
    for match in CITATION.finditer(text):
        page = _find(match["page"], beside)
        if page is None:
            wrong.append(f"{match['page']} does not exist")
            continue
        for heading in re.findall(r'"([^"]*)"', match["heads"]):
            if heading not in _headings(page):
                wrong.append(f"{match['page']} has no heading {heading!r}")
    return wrong


def test_every_citation_resolves() -> None:
    wrong = {_relative(path): unresolved(path.read_text(encoding="utf-8"), path.parent) for path in TEXTS}
    del wrong[_relative(Path(__file__))]
    assert not {path: found for path, found in wrong.items() if found}


def test_a_broken_citation_is_found() -> None:
    assert unresolved('`fetcher/README.md`, "Addresses" and "Redirects"', ROOT) == []
    assert unresolved('`fetcher/README.md`, "Adresses"', ROOT)
    assert unresolved('`fetcher/README.md`, "Addresses" and "Redirect"', ROOT)
    assert unresolved("(`robot/README.md`)", ROOT)
    assert unresolved("`seen-urls.md`", ROOT)
    assert unresolved("`fetcher/README.md`, section 3", ROOT)


FOLDERS = sorted(path.parent for path in PACKAGE.rglob("__init__.py"))


def test_every_folder_has_its_page() -> None:
    """A folder has its own page, or it is described by the page of the folder above."""
    for folder in FOLDERS:
        if not (folder / "README.md").exists():
            above = (folder.parent / "README.md").read_text(encoding="utf-8")
            assert folder.parent != PACKAGE and f"`{folder.name}/`" in above, folder


def test_files_that_a_page_names_exist() -> None:
    """If a page names a file in backquotes, it exists relative to the page, the package or the project.

    A test file may be named without its folder.
    """
    names = r"`((?:[\w-]+/)*[\w-]+\.(?:py|toml)|(?:tests|scripts|crawler)/[\w/.-]+)`"
    for page in PAGES:
        for name in {*re.findall(names, page.read_text(encoding="utf-8"))}:
            if name != "crawl.toml":  # this is the name of a file in a crawl directory
                found = any((base / name).exists() for base in (page.parent, PACKAGE, ROOT))
                within = ROOT / "tests" if name.startswith("test_") else page.parent
                assert found or any(within.rglob(name)), f"{_relative(page)} names {name}"


def test_modules_that_a_module_names_exist() -> None:
    """If a module names a file in backquotes or at the start of a line, the file exists.

    The file is below the folder of the module, in the package, or in the project.
    """
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for name in re.findall(r"(?:`|^)((?:[\w-]+/)*[\w-]+\.(?:py|pxd))(?:`| )", text, re.MULTILINE):
            found = any((base / name).exists() for base in (path.parent, PACKAGE, ROOT))
            assert found or any(path.parent.rglob(name)), f"{_relative(path)} names {name}"


LINK = re.compile(r"\]\((?!https?:|#)([^)#\s]+)\)")


def test_links_and_pictures_of_a_page_exist() -> None:
    for page in (*PAGES, ROOT / "README.md", ROOT / "CHANGELOG.md"):
        text = re.sub(r"```.*?```|`[^`]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        missing = [target for target in LINK.findall(text) if not (page.parent / target).exists()]
        assert not missing, _relative(page)


def test_the_readme_has_at_most_200_lines() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 200


def test_pages_are_shipped() -> None:
    """`pip install` installs the pages together with the code."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    patterns = project["tool"]["setuptools"]["package-data"]["crawler"]
    shipped = {path for pattern in patterns for path in PACKAGE.glob(pattern)}
    assert set(PAGES) <= shipped


def test_the_map_names_every_folder() -> None:
    text = (PACKAGE / "README.md").read_text(encoding="utf-8")
    folders = [folder.name for folder in FOLDERS if folder.parent == PACKAGE]
    missing = [name for name in folders if not re.search(f"`{name}/?`", text)]
    assert missing == []
