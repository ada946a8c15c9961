"""Test that the Grafana dashboard uses only existing metrics, and selects the chosen instances and processes."""

import json
import re
from pathlib import Path
from typing import Any

from crawler.admin import metrics

DASHBOARD = json.loads(
    (Path(__file__).parents[2] / "config" / "grafana" / "crawler.json").read_text(encoding="utf-8")
)
VARIABLES = {each["name"]: each for each in DASHBOARD["templating"]["list"]}


def expressions() -> list[str]:
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def known() -> set[str]:
    named = [name for name, *_ in metrics.NUMBERS]
    named += [name for name, *_ in metrics.MAPPINGS] + [name for name, *_ in metrics.PROCESS]
    named += [f"{name}_bucket" for name, *_ in metrics.HISTOGRAMS] + ["urls_parked", "hosts", "info"]
    return {f"crawler_{name}" for name in named}


def test_each_expression_uses_an_existing_metric() -> None:
    queries = [each["query"]["query"] for each in VARIABLES.values() if each["type"] == "query"]
    used = {name for text in [*expressions(), *queries] for name in re.findall(r"crawler_[a-z_]+", text)}
    assert len(used) > 20 and used <= known(), used - known()


def test_each_metric_is_filtered_by_instance_and_process() -> None:
    for text in expressions():
        metrics_named = re.findall(r"crawler_[a-z_]+(\{[^}]*\})?", text)
        assert metrics_named, text
        for selector in metrics_named:
            assert selector.startswith('{instance=~"$instance",process=~"$process"'), text
    for name in ("instance", "process"):
        variable: dict[str, Any] = VARIABLES[name]
        assert variable["multi"] and variable["includeAll"] and variable["allValue"] == ".*"
        assert f", {name})" in variable["query"]["query"]


def test_rates_follow_the_scrape_interval() -> None:
    """A rate over a fixed range is empty if the scrape interval is longer than half of the range."""
    ranges = {found for text in expressions() for found in re.findall(r"\[([^\]]*)\]", text)}
    assert ranges == {"$__rate_interval"}


def test_the_important_metrics_are_shown() -> None:
    used = " ".join(expressions())
    for name in ("log_warnings_total", "log_errors_total", "process_open_fds", "process_max_fds",
                 "serve_ready_hits_total", "serve_ready_misses_total"):  # fmt: skip
        assert f"crawler_{name}{{" in used, name


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    cells = [
        (x, y)
        for panel in DASHBOARD["panels"]
        for at in [panel["gridPos"]]
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
