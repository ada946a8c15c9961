"""Test the formats of pictures for screens and for print."""

import struct
from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.lab.__main__ import main


def run(*arguments: str) -> int:
    return main("lab", list(arguments))


@pytest.mark.parametrize(("dpi", "share"), [(130, 1.0), (300, 300 / 130)])
def test_a_png_has_the_requested_resolution(tmp_path: Path, dpi: int, share: float) -> None:
    assert run("figures", "azar-2", "--quick", "--out", str(tmp_path), "--dpi", str(dpi)) == 0
    data = (tmp_path / "azar-2.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert (width, height) == (round(936 * share), round(702 * share))


def test_a_pdf_contains_the_command_that_made_it(tmp_path: Path) -> None:
    assert run("figures", "azar-2", "--quick", "--out", str(tmp_path), "--format", "pdf") == 0
    data = (tmp_path / "azar-2.pdf").read_bytes()
    assert data.startswith(b"%PDF-") and b"crawler lab" in data and b"figures azar-2" in data
    assert sorted(path.name for path in tmp_path.iterdir()) == ["azar-2.csv", "azar-2.pdf"]


@pytest.mark.parametrize(
    "arguments", [("--dpi", "5"), ("--dpi", "9999"), ("--dpi", "x"), ("--format", "gif")]
)
def test_other_forms_are_refused(tmp_path: Path, arguments: tuple[str, str]) -> None:
    with pytest.raises(UsageError, match=arguments[0]):
        run("figures", "azar-2", "--out", str(tmp_path), *arguments)
    assert not list(tmp_path.iterdir())
