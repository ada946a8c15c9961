"""Run the right column of `crawler/api/SCRAPY.md`: its commands, its Python code, and the settings that it names."""

import ast
import asyncio
import inspect
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.api.item_files import item_paths
from crawler.config.key_words import keys
from crawler.config.schema import Config
from tests.end_to_end.test_live import Running
from tests.end_to_end.web import Web, page, run

PAGE = Path(crawler.__file__).parent / "api/SCRAPY.md"
TEXT = PAGE.read_text(encoding="utf-8")
CELLS = [cell for cell in re.findall(r"^\| (?!Scrapy).* \| (.*) \|$", TEXT, re.MULTILINE) if "`" in cell]
PROSE = "\n".join(line for line in TEXT.splitlines() if not line.startswith("|"))
SOURCE = "<h1>Teas</h1><li>Green<li>Black<a href=next>Next</a><form method=post><input name=user></form>"
PNG = 200, {"Content-Type": "image/png"}, b"\x89PNG\r\n\x1a\n" + bytes(64)
# Loopback is allowed, and there are no delays.
ENVIRONMENT = {
    "CRAWLER_NETWORK__ALLOW_NETWORKS": "127.0.0.0/8",
    "CRAWLER_POLITENESS__DELAY": "0",
    "CRAWLER_POLITENESS__DELAY_FACTOR": "0",
    "CRAWLER_CRAWL__PATIENCE": "5",
    "CRAWLER_DUE__MAX_WAIT": "0.05",
}
# Arguments that let a command end soon.
SHORT = {"crawler top": "--count 1", "crawler bench cache": "--requests 1000 --bits 6"}
OF_A_RUNNING_CRAWL = "crawler pause"


class Tea:
    """The class of an item. The examples use it to choose a file."""


def parse(page: crawler.Page) -> None:
    """Do nothing. The examples use this function as their callback."""


def item_of(page: crawler.Page) -> Iterator[dict[str, str]]:
    yield {"url": page.url}


def links(page: crawler.Page) -> list[str]:
    """Return the links of a page. The examples use this function as their link extractor."""
    return page.css("a").attrs("href")


def f(item: dict[str, str], page: crawler.Page) -> dict[str, str]:
    """Return the item. The examples use this function as their processor."""
    return item


def codes(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


@pytest.fixture(scope="module")
def web() -> Iterator[Web]:
    with Web({"/": page("/tea.png", "/tea/1"), "/tea.png": PNG, "/tea/1": "<h1>Tea</h1>"}) as served:
        yield served


@pytest.fixture(scope="module")
def crawled(web: Web, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Crawl the web once. Return the crawl directory."""
    folder = tmp_path_factory.mktemp("crawled") / "crawl"
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        assert run("crawl", web.url(), "--dir", folder, "--progress", "none").code == 0
    return folder


@pytest.fixture
def folder(crawled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Change to a folder with the directory `crawl` of a finished crawl. Set the environment of the examples."""
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdin", io.StringIO("page.status\n"))
    shutil.copytree(crawled, tmp_path / "crawl")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("cell", CELLS)
def test_the_right_column_runs(cell: str, web: Web, folder: Path) -> None:
    if OF_A_RUNNING_CRAWL not in cell:
        check(cell, web, folder)
        return
    shutil.rmtree(folder / "crawl")
    endless = "".join(f"<a href=/tea/{number}>" for number in range(2000))
    with Web({}, other=endless) as many:
        running = Running(folder, [many.url()], "--delay", "0.2")
        try:
            running.until(running.fetched)
            check(cell, web, folder)
        finally:
            running.end()


def check(cell: str, web: Web, folder: Path) -> None:
    for number, code in enumerate(codes(cell)):
        if code.startswith(("crawler ", "python ")):
            run_command(code, web, folder)
        elif re.fullmatch(r"[a-z_.\[\]]+", code):
            check_name(code, web)
        elif keyword := re.match(r"(\w+)=", code):
            assert keyword[1] in inspect.signature(crawler.run).parameters
            arguments = {"items": f"items-{number}.jsonl"} | evaluate(f"dict({code})", web)
            crawler.run(web.url(), item_of, directory=f"crawl-{number}", **arguments)
            files = item_paths(arguments["items"])
            assert any((folder / path).stat().st_size for path in files)
        else:
            value = evaluate(code, web)
            assert value or code.startswith(("async for", "logging.", "parse("))
            if code.startswith("{"):
                crawler.configure(value)


def run_command(code: str, web: Web, folder: Path) -> None:
    places = {"URL": web.url(), "NAME": "teas"}
    line = re.sub("URL|NAME", lambda found: places[found[0]], code)
    line = line.replace("s3://bucket", f"file://{folder}")
    program, *words = shlex.split(f"{line} {SHORT.get(code, '')}")
    if program == "python":
        run("new", "teas")
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        ran = run(*words)
        assert ran.code == 0, ran


def check_name(name: str, web: Web) -> None:
    """Check that a name is a setting, a table of settings, an argument, a file of the directory, or an attribute."""
    settings = {*keys(), *(f"[[{field}]]" for field in Config.__struct_fields__)}
    arguments = {*inspect.signature(crawler.run).parameters, *inspect.signature(crawler.Request).parameters}
    if name not in settings | arguments and not (Path("crawl") / name).exists():
        assert evaluate(name, web) is not None


def evaluate(code: str, web: Web) -> Any:
    """Return the value of Python code. An `async for` gets an empty body."""
    source = '{"teas": 2}' if "page.json" in code else SOURCE
    names = {
        "asyncio": asyncio,
        "crawler": crawler,
        "f": f,
        "Kind": dict,
        "links": links,
        "page": (page := crawler.Page.of("http://shop.test/", source)),
        "parse": parse,
        "re": re,
        "seeds": web.url(),
        "Tea": Tea,
        "url": web.url(),
        "xpath": page.xpath,
    }
    if code.startswith("logging."):
        names["logging"] = __import__("logging")
    if not code.startswith(("await ", "async ")):
        return eval(code, names)
    loops = code.startswith("async ")

    async def run() -> Any:
        compiled = compile(
            f"{code}: pass" if loops else code,
            "",
            "exec" if loops else "eval",
            ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
        )
        async with crawler.Crawl(directory="crawl-3", seeds=web.url()) as crawl:
            return await eval(compiled, names | {"crawl": crawl})

    with closing(asyncio.new_event_loop()) as loop:
        return loop.run_until_complete(run())


def test_the_settings_in_the_prose_exist() -> None:
    named = [code for code in codes(PROSE) if re.fullmatch(r"[a-z]+\.[a-z_]+", code)]
    assert named and set(named) <= keys().keys()


def test_the_page_has_examples() -> None:
    assert len(CELLS) == 76
