"""The Grafana dashboard asks only for what workers tell."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jobs.outcome import Verdict
from jobs.task import Pool
from supervisor.monitor.catalog import CATALOG
from supervisor.monitor.exposition import Family

DASHBOARD = json.loads((Path(__file__).parent.parent / "docs" / "grafana-dashboard.json").read_text())
BY_SCRAPE = {"instance", "job"}  # labels that Prometheus adds
TOLD = {
    name: family
    for family in CATALOG
    for name in (
        [family.name + end for end in ("_bucket", "_sum", "_count")] if family.type == "histogram" else [family.name]
    )
}
VALUES = {"verdict": set(Verdict), "pool": set(Pool), "state": {"due", "scheduled", "blocked"}}


def queries() -> Iterator[str]:
    """Every query of a panel or a variable."""

    def walk(node: Any) -> Iterator[str]:
        match node:
            case {"expr": str(text)} | {"query": {"query": str(text)}}:
                yield text
            case dict():
                for each in node.values():
                    yield from walk(each)
            case list():
                for each in node:
                    yield from walk(each)

    return walk(DASHBOARD)


def families(query: str) -> list[Family]:
    return [TOLD[name] for name in re.findall(r"\boomph_\w+", query)]


def assert_exists(query: str) -> None:
    """Every metric, label and value that a query names is one of a worker."""
    asked = families(query)
    assert asked, "it names no metric of a worker"
    known = BY_SCRAPE | {label for family in asked for label in family.labels}
    known |= {"le"} if "_bucket" in query else set()
    matched = re.findall(r'(\w+)(?:=|!=|=~|!~)"([^"]*)"', query)
    grouped = [label for labels in re.findall(r"\bby \(([^)]*)\)", query) for label in re.split(r",\s*", labels)]
    assert {*(label for label, _ in matched), *grouped} <= known
    for label, values in matched:
        assert values.startswith("$") or set(values.split("|")) <= VALUES[label]


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_a_query_names_metrics_labels_and_values_that_exist(query: str) -> None:
    assert_exists(query)


@pytest.mark.parametrize("query", sorted(set(queries())))
def test_what_grows_is_asked_for_its_growth(query: str) -> None:
    for name in re.findall(r"\boomph_\w+", query):
        grows = TOLD[name].type in ("counter", "histogram")
        assert grows == bool(re.search(rf"(rate|increase)\({name}\b", query)), query


def test_every_metric_has_its_place() -> None:
    shown = {family.name for query in queries() for family in families(query)}
    assert {family.name for family in CATALOG} - shown == set()


def test_each_legend_names_labels_of_its_query() -> None:
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            named = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
            grouped = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            assert named <= {label.strip() for labels in grouped for label in labels.split(",")} | BY_SCRAPE
