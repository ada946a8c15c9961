"""Test that terminal output contains no control sequences except those of the crawler itself."""

from pathlib import Path

import pytest

from tests.end_to_end.web import FAST, Web, crawl, on_terminal, page


@pytest.mark.parametrize("command", ["crawl", "top", "export"])
def test_the_control_sequences_of_screens_pass(tmp_path: Path, command: str) -> None:
    with Web({"/": page("/in"), "/in": page(text="in")}) as web:
        if command == "crawl":
            fast = [each for each in FAST if each not in ("--progress", "none")]
            shown = on_terminal("crawl", web.url(), "--dir", str(tmp_path), *fast)
        else:
            crawl(tmp_path, web.url())
            more = ["--count", "1"] if command == "top" else ["--format", "crawl-log"]
            shown = on_terminal(command, "--dir", str(tmp_path), *more)
    assert b"\\u001b" not in shown and b"\\u000d" not in shown
    assert (b"\x1b[" in shown) == (command != "export")
