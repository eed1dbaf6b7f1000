"""The text that a scrape gets, read by Prometheus' own parser; and health, as a table."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from jobs.outcome import Verdict
from jobs.task import Pool
from supervisor.monitor.catalog import CATALOG
from supervisor.monitor.exposition import Family, Page
from supervisor.monitor.histogram import Histogram
from supervisor.monitor.meter import MAX_KINDS, OTHER, Meter
from supervisor.monitor.meter_view import tell_meter
from supervisor.monitor.probes import Limits, Signs, why_dead, why_unready
from supervisor.shutdown import State

GAUGE = Family("oomph_x", "gauge", 'a "quoted" \\ and\na second line', ("kind", "pool"))


@given(st.dictionaries(st.tuples(st.text(), st.text()), st.floats() | st.integers(-(2**53), 2**53), min_size=1))
def test_whatever_the_labels_and_values_are_they_come_back(samples: dict[tuple[str, str], float]) -> None:
    page = Page()
    page.add(GAUGE, samples.items())
    (family,) = text_string_to_metric_families(page.text())
    assert family.documentation == GAUGE.help
    told = {(sample.labels["kind"], sample.labels["pool"]): sample.value for sample in family.samples}
    assert told.keys() == samples.keys()
    assert all(told[key] == value or (math.isnan(told[key]) and math.isnan(value)) for key, value in samples.items())


def test_a_histogram_counts_up_to_each_bound_inclusively() -> None:
    histogram, page = Histogram((0.1, 1.0)), Page()
    for value in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(value)
    page.add_histograms(Family("oomph_y_seconds", "histogram", "y", ("kind",)), [(("a",), histogram)])
    (family,) = text_string_to_metric_families(page.text())
    told = {
        (sample.name.removeprefix("oomph_y_seconds"), sample.labels.get("le")): sample.value
        for sample in family.samples
    }
    assert told == {
        ("_bucket", "0.1"): 2,
        ("_bucket", "1.0"): 4,
        ("_bucket", "+Inf"): 5,
        ("_count", None): 5,
        ("_sum", None): pytest.approx(8.65),
    }


def test_names_and_units_keep_to_conventions() -> None:
    assert len({family.name for family in CATALOG}) == len(CATALOG)
    for family in CATALOG:
        assert family.name.startswith("oomph_")
        assert family.name.endswith("_total") == (family.type == "counter")
        assert not family.name.endswith(("_ms", "_mb", "_count", "_sum", "_bucket"))
        assert set(family.labels) <= {"kind", "pool", "state", "status", "table", "verdict", "version"}


LIMITS = Limits(lease=25, heartbeat=5, poll=1, call_timeout=10)
WELL = Signs(
    state=State.RUNNING,
    lease_left=22,
    keeper_alive=True,
    asking_for=0.1,
    looked_ago=0.9,
    hears=True,
    template_up=True,
)
TABLE = {
    # what is seen: (live, why not ready)
    "well": (WELL, True, ""),
    "draining": (replace(WELL, state=State.DRAINING), True, "it is draining"),
    "starting": (replace(WELL, lease_left=None, keeper_alive=False), True, "it is starting"),
    "two renewals failed": (replace(WELL, lease_left=14.9), True, "trusted for 14.9 s"),
    "lease lost, keeper ended": (replace(WELL, lease_left=0.0, keeper_alive=False), True, "its lease is lost"),
    "keeper ended": (replace(WELL, keeper_alive=False), False, "the lease keeper has ended"),
    "a claim hangs": (replace(WELL, asking_for=161), False, "a claim is on its way for 161 s"),
    "a claim is slow": (replace(WELL, asking_for=20), True, ""),
    "deaf, but polls": (replace(WELL, hears=False), True, ""),
    "hears, but polls no more": (replace(WELL, looked_ago=60), True, ""),
    "deaf, and polls no more": (
        replace(WELL, hears=False, looked_ago=60),
        True,
        "neither hears notifications nor polls",
    ),
    "never looked": (replace(WELL, hears=False, looked_ago=None), True, "neither hears notifications nor polls"),
    "no template": (replace(WELL, template_up=False), True, "no template is up"),
    "no children": (replace(WELL, template_up=None), True, ""),
}


@pytest.mark.parametrize("name", TABLE)
def test_health_follows_the_signs(name: str) -> None:
    signs, live, why = TABLE[name]
    assert (why_dead(signs, LIMITS) == []) == live
    reasons = why_unready(signs, LIMITS)
    assert (len(reasons) == 1 and why in reasons[0]) if why else reasons == []


def test_kinds_of_anybody_share_one_series_beyond_the_limit() -> None:
    meter, page = Meter({Pool.AGENT: ["ours"]}), Page()
    for number in range(2 * MAX_KINDS):
        meter.settled(f"kind {number}", Verdict.WORKER_LOST)
    tell_meter(page, meter)
    (attempts,) = (each for each in text_string_to_metric_families(page.text()) if each.name == "oomph_attempts")
    lost = {each.labels["kind"]: each.value for each in attempts.samples if each.labels["verdict"] == "worker_lost"}
    assert lost.pop("ours") == 0
    assert len(lost) == MAX_KINDS
    assert lost[OTHER] == MAX_KINDS + 1
    assert sum(lost.values()) == 2 * MAX_KINDS
