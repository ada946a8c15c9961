"""`crawler new NAME`: write an example program, its pages and a test of its callbacks."""

import importlib.util
import keyword
from importlib import resources
from pathlib import Path

from crawler.cli import options
from crawler.cli.parsing import quoted
from crawler.errors import StoreError, UsageError, may_not_write
from crawler.storage.files import new_folder, refuse_occupied

# File in `example/` -> file in the new folder. In names and texts, NAME stands for the name of the program.
FILES = {
    "crawl.py.txt": "NAME.py",
    "test.py.txt": "test_NAME.py",
    "index.html": "site/index.html",
    "green.html": "site/green.html",
    "black.html": "site/black.html",
}


def main(_command: str, argv: list[str]) -> int:
    """Write the example and print the commands that test and run it."""
    parser = options.parser(
        "new",
        "Write a program that crawls a shop and collects its products, with pages to try it on and a test of its\n"
        "callbacks, to a new folder NAME.",
        "crawler new teas",
        on_crawl=False,
    )
    parser.add_argument(
        "name", metavar="NAME", type=Path, help="folder to create; its last part names the program"
    )
    folder: Path = parser.parse_args(argv).name
    _check(folder)
    _write(folder)
    print(f"{folder}: {folder.name}.py, test_{folder.name}.py and pages to try them on in site/")
    print("next:")
    if importlib.util.find_spec("pytest") is None:
        print("  python -m pip install pytest")
    print(f"  python -m pytest {quoted(folder)}")
    print(f"  python {quoted(folder / (folder.name + '.py'))} https://example.org/")
    return 0


def _check(folder: Path) -> None:
    """Raise a UsageError if the folder exists, or if Python could not import a program of that name."""
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} exists already; `crawler new` overwrites nothing")
    name = folder.name
    if not (name.isidentifier() and name.isascii()):
        raise UsageError(
            f"{name!r} cannot name a Python module: use letters, digits and _, as in `crawler new teas`"
        )
    try:
        taken = importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        taken = True
    if taken or keyword.iskeyword(name):
        raise UsageError(f"{name!r} is the name of a Python module or keyword; choose another name")


def _write(folder: Path) -> None:
    examples = resources.files("crawler.cli").joinpath("example")
    refuse_occupied(folder)
    try:
        with new_folder(folder) as draft:
            (draft / "site").mkdir()
            for source, target in FILES.items():
                text = examples.joinpath(source).read_text(encoding="utf-8")
                path = draft / target.replace("NAME", folder.name)
                path.write_text(text.replace("NAME", folder.name), encoding="utf-8")
    except StoreError as error:
        if may_not_write(error):
            raise UsageError(str(error)) from error
        raise
