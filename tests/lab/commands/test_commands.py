"""Test the commands `crawler lab refresh`, `figures` and `import`."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from crawler import cli
from crawler.clock import VirtualClock
from crawler.errors import UsageError
from crawler.lab import progress_line
from crawler.lab.__main__ import COMMANDS, main
from crawler.lab.extras import require
from crawler.lab.figures import drawing as figures
from crawler.lab.refresh import kolobov, pages_file, simulate
from crawler.lab.refresh.simulate import ExperimentSetting
from tests.lab.league.made import EXCERPT, csv_rows

GOOD = """page,importance,change_rate,recall,precision
a,1.0,0.5,0.5,0.8
b,2.0,0.1,,
c,0.1,5.0,0.2,0.5
d,1.0,0,,
"""


def test_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main("lab", []) == 0
    assert "refresh" in capsys.readouterr().out
    with pytest.raises(UsageError, match="nonsense"):
        main("lab", ["nonsense"])


@pytest.mark.parametrize(
    "words",
    [
        "lab worlds --out FOLDER",
        "lab league --data DATA --out FOLDER",
        "lab figures all --out FOLDER",
        "lab histories --git DATA --out FOLDER",
        "lab cache --figures FOLDER",
        "lab trace synth FOLDER",
        "lab trace import DATA FOLDER",
        "lab order --out FILE",
        "lab refresh --out FILE",
        "lab cluster --out FILE",
        "lab import x --out FILE",
        "lab cache --csv FILE",
        "lab web --log FILE",
        "bench units --out FILE",
    ],
)
def test_results_that_could_not_be_written_are_refused_before_the_experiment(
    tmp_path: Path, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    for folder, file in (("file", "."), ("file/results", "file/results"), ("x" * 300, "x" * 300)):
        places = {"DATA": tmp_path, "FOLDER": tmp_path / folder, "FILE": tmp_path / file}
        assert cli.main([str(places.get(word, word)) for word in words.split()]) == 2
        told = capsys.readouterr()
        assert re.fullmatch(r"crawler: .*(irectory|too long).*\n", told.err) and not told.out
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("output", ["cache --csv", "cache --figures", "web --log", "cluster --out"])
def test_every_option_for_results_is_checked_before_the_experiment(tmp_path: Path, output: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="irectory"):
        main("lab", [*output.split(), str(tmp_path / "file" / "results")])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("refresh --size 5000000", "a run of 5.5e+09 signals and changes is too long"),
        ("worlds issue --seeds 1 --processes 1 --policies greedy --check", "--check needs ncis"),
        ("cluster --links-of /nowhere --curve 0,3", "--curve: expected a whole number >= 1, got 0"),
        ("cluster --links-of /nowhere --curve 2 --pages 1000000", "--curve: more than 1,000,000 pages"),
        ("cluster --links-of /nowhere --histories /nowhere", "--histories needs --days"),
        ("league --data /nowhere --living --hubs x", "--hubs: 'x' is not one of dir, map, newest, news"),
        ("league --data /nowhere --budgets 0", "--budgets: expected a number > 0, got 0"),
        ("cache /nowhere --bits 9-3", "--bits: expected a whole number >= 9, got 3"),
    ],
)
def test_an_impossible_run_is_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str, said: str
) -> None:
    """The error is about the option, although the folder is missing, and nothing was drawn or printed."""
    monkeypatch.setattr(simulate, "standard_pages", lambda *_: pytest.fail("drew pages"))
    with pytest.raises(UsageError) as caught:
        main("lab", words.split())
    assert str(caught.value).startswith(said)
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("kind", simulate.EVENT_RATES)
def test_the_mean_number_of_events_is_that_of_the_drawn_pages(kind: str) -> None:
    pages = simulate.standard_pages(np.random.default_rng(1), 100_000, kind)
    assert float((pages.signal_rate + pages.change_rate).mean()) == pytest.approx(
        simulate.EVENT_RATES[kind], rel=0.01
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("refresh --bandwidth x", "--bandwidth: expected a number, got 'x'"),
        ("refresh --bandwidth 5:1", "--bandwidth: the first time must be 0, got 5"),
        ("refresh --bandwidth 0:1,0:2", "--bandwidth: expected a number > 0, got 0"),
        (
            "refresh --bandwidth 0:1,2:1e10",
            "--bandwidth: expected a number <= 1,000,000,000, got 10,000,000,000",
        ),
        ("cache --bits x", "--bits: expected a whole number, got 'x'"),
        ("cache --bits 1-31", "--bits: expected a whole number <= 30, got 31"),
        ("cache --links 1.5", "--links: expected a whole number, got '1.5'"),
        ("cache --first 0", "--first: expected a whole number >= 1, got 0"),
        ("cache --first 3e9", "--first: expected a whole number <= 2,147,483,647, got 3,000,000,000"),
        ("cluster --curve 1,x", "--curve: expected a whole number, got 'x'"),
        ("cluster --curve 257", "--curve: expected a whole number <= 256, got 257"),
        ("league --data x --budgets 1,x", "--budgets: expected a number, got 'x'"),
        ("league --data x --budgets ,", "--budgets: expected a number, got ','"),
        ("import x --sample 0", "--sample: expected a whole number >= 1, got 0"),
    ],
)
def test_every_number_is_checked_in_the_same_words(words: str, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        main("lab", words.split())
    assert str(caught.value).startswith(said)


def test_simulation_prints_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "result.csv"
    words = "refresh --policies baseline,ncis --size 10 --bandwidth 0:5,10:8 --time 20 --instances 2 --out"
    assert main("lab", [*words.split(), str(out)]) == 0
    assert "ncis" in capsys.readouterr().out
    assert [row["policy"] for row in csv_rows(out)] == ["baseline", "ncis"]
    assert "refresh --policies" in out.read_text().splitlines()[0]


@pytest.mark.parametrize(
    "words",
    [
        "--policies nothing",
        "--policies ,",
        "--size 0",
        "--instances 0",
        "--corrupt 2",
        "--bandwidth x",
        "--bandwidth 5:1",
        "--bandwidth 0:1,0:2",
        "--bandwidth 0:0",
        "--pages /nowhere/pages.csv",
        "rates",
        "rates --pages x.csv --rate 0",
        "rates --pages x.csv --rate nan",
        "--time nan",
        "--time 1e12",
        "--bandwidth nan",
        "--delay -1",
        "--seed -1",
        "--size 50000 --time 10000 --instances 1",
    ],
)
def test_invalid_options_are_reported_in_one_line(words: str) -> None:
    with pytest.raises(UsageError) as caught:
        main("lab", ["refresh", *words.split()])
    assert "\n" not in str(caught.value)


def test_optimal_rates_for_a_users_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "pages.csv"
    path.write_text(GOOD)
    assert main("lab", ["refresh", "rates", "--pages", str(path), "--rate", "0.4"]) == 0
    rows = csv_rows(tmp_path / "pages.rates.csv")
    rates = [float(row["rate"]) for row in rows]
    assert sum(rates) == pytest.approx(0.4) and rates[2] == rates[3] == 0.0
    assert float(rows[3]["freshness"]) == 1.0 and float(rows[2]["freshness"]) == 0.0
    assert (tmp_path / "pages.rates.png").read_bytes()[:4] == b"\x89PNG"
    assert "4 pages, 2 not worth" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("page,importance\na,1\n", "missing column change_rate"),
        ("importance,change_rate\n1,x\n", "line 2"),
        ("importance,change_rate\n1\n", "line 2"),
        ("importance,change_rate\n1,-1\n", "change_rate is '-1'"),
        ("importance,change_rate\nnan,1\n", "importance is 'nan'"),
        ("importance,change_rate\ninf,1\n", "importance is 'inf'"),
        ("importance,change_rate,recall\n1,1,1.5\n", "recall is '1.5'"),
        ("importance,change_rate,recall,precision\n1,1,0.5,0\n", "precision 0"),
        ("importance,change_rate\n", "no pages"),
        ("importance,change_rate\n0,1\n", "importance above 0"),
        ("importance,change_rate\n1,1e-320\n", "expected 0 to"),
        ("# two\n# comments\nimportance,change_rate\n1,1\n1,\n", "line 5: change_rate is ''"),
        ("importance,change_rate,labelled\n1,1,2\n", "labelled is '2'"),
        ("", "missing column"),
    ],
)
def test_bad_pages_files_name_the_line(tmp_path: Path, text: str, wanted: str) -> None:
    path = tmp_path / "pages.csv"
    path.write_text(text)
    with pytest.raises(UsageError, match=wanted):
        pages_file.read(path)


@pytest.mark.parametrize(
    ("head", "names"), [("page,", ["a", "2"]), ("url,", ["a", "2"]), ("name,", ["1", "2"])]
)
def test_pages_have_names_or_numbers(tmp_path: Path, head: str, names: list[str]) -> None:
    file = tmp_path / "pages.csv"
    file.write_text(f"{head}importance,change_rate\na,1,2\n,3,4\n")
    assert pages_file.read(file).names == names


def test_pages_file_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "pages.csv"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError):
        pages_file.read(path)


def test_import_of_the_public_data_set(tmp_path: Path) -> None:
    """Small versions of the three files of the data set are imported.

    The trusted page gets the change rate that the data contains.
    """
    (tmp_path / kolobov.IMPORTANCE).write_text("".join(f"{k}\t{k * 10}\n" for k in range(1, 41)))
    history = "[[1.5, 0], [0.5, 1], [2.0, 0], [1.0, 0]]"
    (tmp_path / kolobov.HISTORY).write_text("".join(f"{k}\t5.5\t{history}\n" for k in range(1, 40)))
    (tmp_path / kolobov.TRUSTED).write_text("40\t0.25\n")
    out = tmp_path / "pages.csv"
    assert main("lab", ["import", str(tmp_path), "--out", str(out), "--sample", "1000"]) == 0
    file = pages_file.read(out)
    assert len(file.pages) == 40 and file.labelled.sum() == 1
    assert file.pages.change_rate[file.labelled].tolist() == [0.25]
    assert 0.1 < file.pages.change_rate[0] < 1.0
    assert main("lab", ["import", str(tmp_path), "--out", str(out), "--sample", "7"]) == 0
    assert len(pages_file.read(out).pages) == 7


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (kolobov.IMPORTANCE, "1\n"),
        (kolobov.IMPORTANCE, "1\tx\n"),
        (kolobov.HISTORY, "1\t2\n"),
        (kolobov.IMPORTANCE, "1\t-3\n"),
        (kolobov.HISTORY, "1\t2\t[[1,\n"),
        (kolobov.HISTORY, "1\t2\t[[-1,0]]\n"),
        (kolobov.TRUSTED, "1\tx\n"),
    ],
)
def test_damaged_data_set(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / kolobov.IMPORTANCE).write_text("1\t10\n")
    (tmp_path / kolobov.HISTORY).write_text("1\t2\t[]\n")
    (tmp_path / kolobov.TRUSTED).write_text("")
    (tmp_path / name).write_text(text)
    with pytest.raises(UsageError, match=name):
        main("lab", ["import", str(tmp_path), "--out", str(tmp_path / "out.csv")])
    with pytest.raises(UsageError):
        main("lab", ["import", str(tmp_path / "nowhere")])


@pytest.mark.parametrize("name", ["ncis-9", "azar-2"])
def test_a_figure_carries_its_seed_and_command(tmp_path: Path, name: str) -> None:
    assert main("lab", ["figures", name, "--quick", "--out", str(tmp_path)]) == 0
    picture = (tmp_path / f"{name}.png").read_bytes()
    assert b"crawler lab figures" in picture and b"seed 1" in picture
    lines = (tmp_path / f"{name}.csv").read_text().splitlines()
    assert lines[0].startswith("# command: crawler lab figures") and lines[1] == "# seed: 1"
    assert len(lines) > 100


def test_every_figure_has_a_function() -> None:
    for module, function in figures.FIGURES.values():
        assert callable(figures.figure(module, function))
    with pytest.raises(UsageError, match="FIGURE: 'ncis-99' is not one of"):
        main("lab", ["figures", "ncis-99"])


def test_accuracy_and_rate_figures_draw_from_small_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The figures can be drawn from tiny runs: each policy has rows, and each panel has one title."""
    from crawler.lab.figures import ncis, rates

    monkeypatch.setattr(ncis, "_horizon", lambda options: 0.5)
    drawing = ncis.without_signals(figures.Options(quick=True), sizes=(4, 8))
    assert len(drawing.rows) == 6 and drawing.rows[0][:3] == [4, "baseline", 2]
    monkeypatch.setattr(rates, "ExperimentSetting", lambda horizon: ExperimentSetting(horizon=0.5))
    drawing = rates.discrete_rates(figures.Options(quick=True, instances=1))
    assert len(drawing.rows) == 600


def test_histories_of_the_bias_figures_have_their_rates() -> None:
    from crawler.lab.figures.bias import draw_history

    delta, tau, n, z = draw_history(np.random.default_rng(1), 0.5, 0.5, 20_000.0)
    assert n.sum() / tau.sum() > 0.04 and 0.05 < z.mean() < 1.0 and 0.05 <= delta <= 0.5


def test_progress_shows_the_remaining_time(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line is printed after two seconds, and the next line ten seconds later.

    Each part of the work adds its share of the whole work to the progress.
    """
    early = VirtualClock()
    soon = progress_line.ProgressLine("soon", early)
    for _ in range(14):
        soon(0.25)
        early.advance(1.0)
    assert capsys.readouterr().err == ("soon: 25 % done, about 6 s left\nsoon: 25 % done, about 36 s left\n")
    clock = VirtualClock()
    report = progress_line.part(progress_line.ProgressLine("it", clock), 0.5, 1.0)
    report(0.2)
    clock.advance(300.0)
    report(0.5)
    report(0.6)
    clock.advance(20.0)
    report(1.0)
    progress_line.silent(0.3)
    assert capsys.readouterr().err == "it: 75 % done, about 2 min left\n"


# Run without the packages of the extra [lab]; print the exit code of each command.
BARE = """
import sys
for name in ("scipy", "matplotlib"):
    sys.modules[name] = None
from crawler import cli
from crawler.lab.__main__ import COMMANDS
for words in [[name, "--help"] for name in COMMANDS] + [line.split() for line in sys.argv[1:]]:
    try:
        code = cli.main(["lab", *words])
    except SystemExit as exited:
        code = exited.code or 0
    print("exit", code, file=sys.stderr)
"""


def test_without_the_extra_every_command_explains_itself_and_names_what_it_needs(tmp_path: Path) -> None:
    lines = [
        "worlds issue --seeds 1 --policies uniform,bayes",
        "refresh --size 20 --time 5 --instances 1",
        "cache locality --threads 2 --links 100",
        f"figures broder-2 --out {tmp_path}",
    ]
    ran = subprocess.run(
        [sys.executable, "-c", BARE, *lines], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    told = ran.stderr.splitlines()
    helps, errors = told[: len(COMMANDS)], told[len(COMMANDS) :]
    assert helps == ["exit 0"] * len(COMMANDS)
    assert errors[1::2] == ["exit 2"] * len(lines)
    assert all(line.endswith("(scripts/setup lab, or pip install 'crawler[lab]')") for line in errors[::2])


def test_a_missing_extra_is_reported_in_one_line() -> None:
    with pytest.raises(UsageError, match=r"pip install 'crawler\[lab\]'"):
        require("no_such_package_anywhere")


@pytest.mark.parametrize(
    "words",
    [
        "trace synth {folder}/trace --threads 5 --links 3e6",
        "cache order --threads 5 --links 20000 --bits 2-4",
        "cache locality --threads 5 --links 20000",
        "order --pages 60 --hosts 3 --seeds 1 --orders depth,breadth-first --quality rank",
        "league --data {excerpt} --calibration --arms none --budgets 1,3 --pages 5 --days 400 --processes 1",
    ],
)
def test_long_commands_report_progress(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: str
) -> None:
    monkeypatch.setattr(progress_line, "FIRST", 0.0)
    assert main("lab", words.format(folder=tmp_path, excerpt=EXCERPT).split()) == 0
    assert " % done, about " in capsys.readouterr().err
