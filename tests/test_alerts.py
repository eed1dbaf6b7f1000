"""The rules for Prometheus alarm on what workers tell, and on nothing else."""

import re
from typing import Any

import pytest
import yaml

from jobs.task import Pool
from supervisor.settings import Settings
from tests.test_dashboard import BY_SCRAPE, assert_exists, families
from tests.test_layout import ROOT

FILE = ROOT / "deploy" / "prometheus" / "alerts.yml"
RULES: list[dict[str, Any]] = [rule for group in yaml.safe_load(FILE.read_text())["groups"] for rule in group["rules"]]
EXPRESSIONS = {str(rule["alert"]): str(rule["expr"]) for rule in RULES}
ADVICE = ROOT / "docs" / "how-to" / "deploy.md"


def test_each_rule_has_a_name_of_its_own_and_says_what_is_wrong() -> None:
    assert len(EXPRESSIONS) == len(RULES)
    for rule in RULES:
        assert rule.keys() <= {"alert", "expr", "for", "labels", "annotations"}, rule
        assert rule["labels"]["severity"] in ("critical", "warning"), rule
        assert rule["annotations"]["summary"], rule
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0s")), rule


@pytest.mark.parametrize("alert", EXPRESSIONS)
def test_a_rule_names_metrics_labels_and_values_that_exist(alert: str) -> None:
    assert_exists(EXPRESSIONS[alert])


@pytest.mark.parametrize("alert", EXPRESSIONS)
def test_what_a_rule_tells_uses_labels_that_it_has(alert: str) -> None:
    rule, expression = next(rule for rule in RULES if rule["alert"] == alert), EXPRESSIONS[alert]
    kept = re.findall(r"^max by \(([^)]*)\)", expression)
    if kept:
        has = {label.strip() for label in kept[0].split(",")}
    elif expression.startswith(("max(", "absent(")):
        has = set()
    else:
        has = BY_SCRAPE | {label for family in families(expression) for label in family.labels}
    told = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", told)) <= has


def test_that_no_worker_is_there_is_seen_for_all_and_for_each_pool() -> None:
    assert "absent(oomph_worker_ready)" in EXPRESSIONS.values()
    for pool in Pool:
        assert f'absent(oomph_slots{{pool="{pool}"}})' in EXPRESSIONS.values()


def test_the_limits_are_those_of_the_default_settings() -> None:
    half = Settings().worker_lease_seconds / 2
    assert EXPRESSIONS["OomphLeaseAtRisk"] == f"oomph_lease_margin_seconds < {half:g}"


def test_what_the_page_advises_to_alarm_on_has_a_rule() -> None:
    advice = ADVICE.read_text().partition("What to alarm on")[2].partition("\n## ")[0]
    named = set(re.findall(r"oomph_\w+", advice))
    alarmed = {name for expression in EXPRESSIONS.values() for name in re.findall(r"oomph_\w+", expression)}
    assert named
    assert named <= alarmed
    assert "deploy/prometheus/alerts.yml" in advice
