"""Test that the example made by `crawler new` passes its own test and crawls a web on loopback."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from crawler.cli import new
from tests.end_to_end.web import Ran, Web, run

LOCAL = {
    "CRAWLER_NETWORK__ALLOW_NETWORKS": "127.0.0.0/8",
    "CRAWLER_POLITENESS__DELAY": "0",
    "CRAWLER_POLITENESS__DELAY_FACTOR": "0",
}


def python(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_printed_commands_can_be_pasted_into_a_shell(tmp_path: Path) -> None:
    folder = tmp_path / "my shop" / "teas"
    command = run("new", folder).text.splitlines()[-1]
    assert shlex.split(command) == ["python", f"{folder}/teas.py", "https://example.org/"]
    assert f"'{folder}/teas.py'" in command


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, Ran]:
    """Create an example with `crawler new`. Return the example's folder and the output of the command."""
    folder = tmp_path / "teas"
    return folder, run("new", folder)


def test_the_example_passes_its_test_and_crawls_its_site(made: tuple[Path, Ran]) -> None:
    """One product's page is missing, so the errback is called. The other two products are written."""
    folder, said = made
    assert said.code == 0
    assert said.out.decode().splitlines()[1:] == [
        "next:",
        f"  python -m pytest {folder}",
        f"  python {folder}/teas.py https://example.org/",
    ]
    tested = python("-m", "pytest", "-q", "-p", "no:cacheprovider", folder)
    assert tested.returncode == 0 and "2 passed" in tested.stdout, tested.stdout
    routes = {f"/{path.name}": path.read_text() for path in (folder / "site").iterdir()}
    with Web(routes | {"/": routes["/index.html"]}) as web:
        ran = python(folder / "teas.py", web.url(), **LOCAL)
        assert ran.returncode == 0, ran.stderr
        assert f"{web.url('/sold-out.html')}: gone, status 404" in ran.stdout
        rows = map(msgspec.json.decode, (folder / "products.jsonl").read_bytes().splitlines())
        assert sorted(map(dict.items, rows), key=str) == [
            {"url": web.url("/black.html"), "name": "Black tea", "price": 2.8}.items(),
            {"url": web.url("/green.html"), "name": "Green tea", "price": 3.5}.items(),
        ]


def test_pytest_is_named_if_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert new.main("new", [str(tmp_path / "teas")]) == 0
    assert "  python -m pip install pytest\n  python -m pytest" in capsys.readouterr().out


def test_nothing_is_overwritten(made: tuple[Path, Ran]) -> None:
    folder, _ = made
    (folder / "teas.py").write_text("mine")
    again = run("new", folder)
    assert again.code == 2 and "exists already" in again.err
    assert (folder / "teas.py").read_text() == "mine"


@pytest.mark.parametrize("name", ["json", "crawler", "class", "a-b", "1st", "tea.py", "té"])
def test_a_name_that_cannot_be_imported_is_refused(name: str, tmp_path: Path) -> None:
    refused = run("new", tmp_path / name)
    assert refused.code == 2 and refused.err.startswith("crawler: ")
    assert not (tmp_path / name).exists()


def test_a_folder_that_cannot_be_created_gives_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = run("new", tmp_path / "file" / "teas")
    assert refused.code == 2 and len(refused.err.splitlines()) == 1
