"""Draw the papers' figures, each as a PNG or PDF with a CSV of its data.

    crawler lab figures ncis-6 --out figures
    crawler lab figures all --quick
    crawler lab figures azar-2 --format pdf

Figures ncis-3 to ncis-14 are from Busa-Fekete et al. (2025), azar-1 and azar-2 from Azar et al. (2018), and
broder-2 to broder-11 from Broder, Najork, Wiener (2003). Three more figures use the traces of Broder et al.
The seed and the command are in the caption, in the metadata of the PNG and in the first lines of the CSV.
With --quick, there are few and short runs. Without --quick, the runs have the sizes that the papers use,
unless the caption states other sizes.

A figure is a function (Options) -> Drawing. `FIGURES` lists all figures.
"""

import argparse
import importlib
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from crawler.cli.parsing import OptionParser, one_of, result_folder
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.extras import require
from crawler.lab.progress_line import OnProgress, ProgressLine, silent
from crawler.lab.refresh import pages_file
from crawler.typed_number import within

_NCIS = "crawler.lab.figures.ncis"
_SCATTER = "crawler.lab.figures.rates"
_AZAR = "crawler.lab.figures.azar"
_BIAS = "crawler.lab.figures.bias"
_BRODER = "crawler.lab.figures.broder"
# Figure -> (module, name of the function that draws the figure, or a key of the module's DRAWINGS).
FIGURES = {
    "ncis-3": (_NCIS, "without_signals"),
    "ncis-4": (_NCIS, "perfect_signals"),
    "ncis-5": (_SCATTER, "perfect_signal_rates"),
    "ncis-6": (_NCIS, "noisy_signals"),
    "ncis-7": (_SCATTER, "noisy_signal_rates"),
    "ncis-8": (_NCIS, "corrupted_signals"),
    "ncis-9": (_NCIS, "value_function"),
    "ncis-10": (_SCATTER, "discrete_rates"),
    "ncis-11": (_NCIS, "delayed_signals"),
    "ncis-12": (_NCIS, "changing_bandwidth"),
    "ncis-13": (_BIAS, "naive_bias"),
    "ncis-14": (_BIAS, "likelihood_bias"),
    "azar-1": (_AZAR, "policies_compared"),
    "azar-2": (_AZAR, "optimal_solution"),
    **{
        name: (_BRODER, name)
        for name in (
            *(f"broder-{number}" for number in range(2, 12)),
            "crawl-order",
            "cache-per-thread",
            "link-locality",
        )
    },
}

# Policy -> (label, colour, marker); colour-blind readers can distinguish these colours (Okabe and Ito).
_STYLES = {
    "baseline": ("BASELINE (continuous, no signals)", "#000000", ""),
    "optimum": ("continuous optimum with signals", "#999999", ""),
    "greedy": ("GREEDY", "#0072B2", "o"),
    "lds": ("LDS", "#E69F00", "s"),
    "cis": ("GREEDY-CIS", "#D55E00", "v"),
    "cis+": ("GREEDY-CIS+", "#CC79A7", ""),
    "ncis": ("GREEDY-NCIS", "#009E73", "^"),
    "ncis-d": ("GREEDY-NCIS-D", "#56B4E9", "D"),
    "prompt": ("GREEDY-NCIS, signals without delay", "#0072B2", ""),
    "approx-1": ("G-NCIS-APPROX-1", "#A88F00", "<"),
    "approx-2": ("G-NCIS-APPROX-2", "#CC79A7", ">"),
}
LABELS, COLOURS, MARKERS = ({name: style[k] for name, style in _STYLES.items()} for k in range(3))


FORMATS = ("png", "pdf")
# pixels per inch: the default, for screens, and the maximum, which limits the memory
DPI, DPI_MAX = 130, 1200


class Options(msgspec.Struct, frozen=True):
    """The user's options. If `instances` is 0, each figure uses its own number of instances."""

    seed: int = 1
    instances: int = 0
    quick: bool = False
    pages: Path | None = None
    report: OnProgress = silent

    def count(self, usual: int) -> int:
        return self.instances or (2 if self.quick else usual)


class Drawing(msgspec.Struct, frozen=True):
    """A drawn figure and the table of its data. `caption` states the assumptions."""

    figure: Any
    columns: list[str]
    rows: list[list[object]]
    caption: str


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    parser.add_argument("names", nargs="+", metavar="FIGURE", help=f"{', '.join(FIGURES)}, or all")
    add("--out", "figures", "folder for the files (./figures)", metavar="DIR", type=result_folder)
    add("--seed", 1)
    add("--instances", 0, "number of random problems (the figure's own number)")
    add_picture_options(parser)
    add("--quick", False, "make few, short runs, enough to see the shape")
    add("--pages", Path, "for ncis-8: pages from `crawler lab import` instead of synthetic ones")


def add_picture_options(parser: OptionParser) -> None:
    """Add `--format` and `--dpi`."""
    parser.option("--format", FORMATS[0], "form of the pictures (png)", choices=FORMATS)
    parser.option("--dpi", DPI, f"pixels per inch of a PNG ({DPI}; print: 300)", metavar="N")


def check_picture_options(args: argparse.Namespace) -> None:
    """Raise UsageError if `--dpi` is out of range."""
    within("--dpi", args.dpi, 10, DPI_MAX)


def run(args: argparse.Namespace) -> int:
    names = list(FIGURES) if args.names == ["all"] else args.names
    for name in names:
        one_of("FIGURE", name, FIGURES)
    check_picture_options(args)
    within("--seed", args.seed, 0)
    within("--instances", args.instances, 0)
    require("matplotlib")
    for name in names:
        report = ProgressLine(name, SystemClock())
        drawing = figure(*FIGURES[name])(Options(args.seed, args.instances, args.quick, args.pages, report))
        write(name, drawing, args.out, args.command_line, args.seed, args.format, args.dpi)
    return 0


def figure(module: str, function: str) -> Callable[[Options], Drawing]:
    """Return the function of a row of `FIGURES`."""
    loaded = importlib.import_module(module)
    found: Callable[[Options], Drawing] = getattr(loaded, "DRAWINGS", vars(loaded))[function]
    return found


def write(
    name: str, drawing: Drawing, folder: Path, command: str, seed: int, form: str = FORMATS[0], dpi: int = DPI
) -> None:
    """Write a drawing as NAME.png or NAME.pdf, and its data as NAME.csv; both contain the seed and the command."""
    comments = (f"command: {command}", f"seed: {seed}", f"figure {name}: {drawing.caption}")
    pages_file.write_rows(folder / f"{name}.csv", drawing.columns, drawing.rows, *comments)
    save(drawing.figure, folder / f"{name}.{form}", command, drawing.caption, seed, dpi=dpi)
    print(f"{folder / name}.{form}, .csv")


# -- drawing


def sheet(width: float, height: float, rows: int = 1, columns: int = 1, **more: Any) -> tuple[Any, Any]:
    """Return a figure of the given size in inches, and its axes. No window system is needed."""
    require("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(rows, columns, **more)


def save(
    figure: Any, path: Path, command: str, caption: str, seed: int | None = None, *, dpi: int = DPI
) -> None:
    """Write a PNG or PDF, depending on the suffix of `path`, with a caption.

    Its metadata holds the command, the caption and the seed.
    """
    note = f"{caption}  [{command}{'' if seed is None else f'; seed {seed}'}]"
    columns = int(figure.get_figwidth() * 19)
    figure.supxlabel(textwrap.fill(note, columns), fontsize=7, x=0.01, ha="left", color="#444444")
    metadata = (
        {"Title": caption, "Subject": command, "Keywords": f"seed {seed}", "Creator": "crawler lab"}
        if path.suffix == ".pdf"
        else {"Description": caption, "Source": command, "Comment": f"seed {seed}", "Software": "crawler lab"}
    )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=dpi, metadata=metadata)
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from error


def rate_map(
    axes: Any, change_rate: np.ndarray, importance: np.ndarray, rates: np.ndarray, level: float
) -> None:
    """Draw pages by change rate and importance, coloured by crawl rate.

    Crosses are pages that are never crawled; the line is the border between these pages and the others.
    """
    crawled = rates > 0.0
    wide = _spread(importance) or _spread(change_rate)
    scale = "log" if wide else None
    spots = axes.scatter(
        change_rate[crawled], importance[crawled], c=rates[crawled], s=10, cmap="viridis", norm=scale
    )
    axes.scatter(change_rate[~crawled], importance[~crawled], marker="x", s=10, c="#888888", linewidths=0.7)
    span = np.array([float(change_rate[change_rate > 0.0].min(initial=1.0)), float(change_rate.max())])
    span = span if wide else np.array([0.0, span[1]])
    axes.plot(span, level * span, color="#D55E00", label=f"importance = {level:.3g} x change rate")
    axes.set(xlabel="change rate", ylabel="importance")
    if wide:
        axes.set(xscale="log", yscale="log")
    else:
        axes.set(ylim=(0.0, 1.05 * float(importance.max())), xlim=(0.0, None))
    axes.figure.colorbar(spots, ax=axes, label="crawl rate")
    axes.legend(loc="upper right", fontsize=8, framealpha=0.95)


def _spread(values: np.ndarray) -> bool:
    """Return whether most values would be crowded at one end of a linear axis."""
    return float(values.max()) > 20.0 * float(np.median(values))


def grouped_bars(
    axes: Any, groups: list[str], series: dict[str, list[tuple[float, float]]], labels: Callable[[str], str]
) -> None:
    """Draw the bars of each group side by side, in the colours of the policies.

    A bar is a pair (height, standard error).
    """
    width = 0.8 / len(series)
    for k, (name, values) in enumerate(series.items()):
        places = np.arange(len(groups)) + (k - (len(series) - 1) / 2) * width
        heights, errors = zip(*values, strict=True)
        axes.bar(
            places, heights, width, yerr=errors, color=COLOURS[name], label=labels(name), error_kw={"lw": 1}
        )
    axes.set_xticks(range(len(groups)), groups)
    axes.grid(axis="y", alpha=0.3)
    axes.set_axisbelow(True)
