"""Prometheus' text format, version 0.0.4: families and the page that one scrape gets.

Written here because the well-known client brings a web server and a registry with locks, some megabytes and a
microsecond for each job; the tests read every page with that client's own parser.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from supervisor.monitor.histogram import Histogram

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Family:
    """One metric: its name with unit, its kind, what it tells, and the names of its labels."""

    name: str
    type: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()


Samples = Iterable[tuple[tuple[str, ...], float]]
Histograms = Iterable[tuple[tuple[str, ...], Histogram]]


class Page:
    """The text of one scrape, family by family."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, family: Family, samples: Samples) -> None:
        """Counters or gauges, each with the values of the family's labels."""
        self._begin(family)
        for values, value in samples:
            self._lines.append(f"{family.name}{_labels(family.labels, values)} {number(value)}")

    def add_one(self, family: Family, value: float | None) -> None:
        """A family without labels; None says nothing, because nothing is known."""
        if value is not None:
            self.add(family, [((), value)])

    def add_histograms(self, family: Family, histograms: Histograms) -> None:
        self._begin(family)
        for values, histogram in histograms:
            labels = _labels(family.labels, values)
            opening = f"{family.name}_bucket{labels[:-1]}," if labels else f"{family.name}_bucket{{"
            below = 0
            for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
                below += count
                self._lines.append(f'{opening}le="{number(bound)}"}} {below}')
            self._lines.append(f"{family.name}_sum{labels} {number(histogram.total)}")
            self._lines.append(f"{family.name}_count{labels} {below}")

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"

    def _begin(self, family: Family) -> None:
        told = family.help.replace("\\", r"\\").replace("\n", r"\n")
        self._lines += [f"# HELP {family.name} {told}", f"# TYPE {family.name} {family.type}"]


def number(value: float) -> str:
    """A value as the format writes it."""
    if value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
