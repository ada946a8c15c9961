"""The Grafana dashboard in the repository uses only metrics that exist."""

import json
import re
from pathlib import Path

from crawler.admin import metrics

DASHBOARD = Path(__file__).parents[2] / "config" / "grafana" / "crawler.json"


def test_each_expression_names_a_metric_of_ours() -> None:
    named = [name for name, *_ in metrics.NUMBERS]
    named += [name for name, *_ in metrics.MAPPINGS] + [name for name, *_ in metrics.PROCESS]
    named += [f"{name}_bucket" for name, *_ in metrics.HISTOGRAMS] + ["urls_parked", "hosts"]
    known = {f"crawler_{name}" for name in named}
    used = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        for target in panel["targets"]:
            used |= set(re.findall(r"crawler_[a-z_]+", target["expr"]))
    assert used and used <= known, used - known
