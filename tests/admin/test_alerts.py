"""Test the repository's alert rules: each fault of a crawl fires its alert, and a healthy crawl fires none."""

import re
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from crawler.admin import metrics
from crawler.admin.health import RULES
from crawler.admin.status import Status
from crawler.records import DueCounts
from tests.admin.test_health import ILL, WEAK, status

ALERTS = Path(__file__).parents[2] / "config" / "prometheus" / "alerts.yaml"
_EXPRESSION = re.compile(r"(\w+)(?:\{(.+)\})? (==|>) (\d+)|absent\((\w+)\)")


def expressions() -> dict[str, str]:
    """Return the expression of each alert, by the alert's name."""
    found = re.findall(r"- alert: (\w+)\n +expr: (.+)\n", ALERTS.read_text())
    assert len(found) == ALERTS.read_text().count("alert:")
    return dict(found)


def holds(expression: str, state: Status | None) -> bool:
    """Return whether an alert's expression is true for a crawl's metrics. `state` is None if no crawl answers."""
    match = _EXPRESSION.fullmatch(expression)
    assert match, expression
    name, labels, comparison, bound, absent = match.groups()
    text = "" if state is None else metrics.text([state.plain()]).decode()
    samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]
    if absent:
        return not any(sample.name == absent for sample in samples)
    known = {sample.name for sample in samples}
    assert state is None or name in known, f"the crawler has no metric {name}"
    wanted = dict(re.findall(r'(\w+)="(\w+)"', labels or ""))
    chosen = [
        sample.value for sample in samples if sample.name == name and wanted.items() <= sample.labels.items()
    ]
    return any(found == float(bound) if comparison == "==" else found > float(bound) for found in chosen)


def firing(state: Status | None) -> set[str]:
    return {alert for alert, expression in expressions().items() if holds(expression, state)}


def test_a_healthy_crawl_fires_no_alert() -> None:
    assert firing(status()) == set()


FAULTS = [*ILL, *(row for row in WEAK if row[0] not in {rule for rule, *_ in ILL})]


@pytest.mark.parametrize("more", [more for rule, more, _ in WEAK if rule in {rule for rule, *_ in ILL}])
def test_no_one_is_woken_while_the_crawl_works(more: dict[str, Any]) -> None:
    """An alert whose rule has a weaker and a worse state does not fire in the weaker state."""
    assert firing(status(**more)) == set()


@pytest.mark.parametrize(("rule", "more", "text"), FAULTS, ids=[rule for rule, *_ in FAULTS])
def test_each_fault_fires_its_alert_alone(rule: str, more: dict[str, Any], text: str) -> None:
    (alert,) = firing(status(**more))
    assert f'rule="{rule}"' in expressions()[alert]


def test_a_crawl_that_does_not_answer_and_a_hash_collision_fire_alerts() -> None:
    assert firing(None) == {"CrawlerAbsent"}
    assert firing(status(due=DueCounts(expected_collisions=1.5))) == {"CrawlerCollisions"}


def test_every_rule_has_an_alert() -> None:
    assert set(re.findall(r'rule="(\w+)"', ALERTS.read_text())) == RULES.keys()
