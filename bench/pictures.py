"""The pictures: bars with their spread, distributions, curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("agg")

from matplotlib import pyplot as plt

from bench.figures import Figure

WIDTH = 8.0  # inches
LEAST = 0.05  # of what a logarithmic scale shows; a handler may start before the commit has returned


def bars(path: Path, title: str, unit: str, figures: Sequence[Figure]) -> None:
    """The median of each, with a line from its lowest to its highest run."""
    drawing, axes = plt.subplots(figsize=(WIDTH, 1.2 + 0.4 * len(figures)), layout="constrained")
    medians = [figure.median for figure in figures]
    below = [figure.median - min(figure.values) for figure in figures]
    above = [max(figure.values) - figure.median for figure in figures]
    ours = ["tab:blue" if figure.label.startswith("oomph") else "tab:gray" for figure in figures]
    axes.barh([figure.label for figure in figures], medians, xerr=[below, above], color=ours, capsize=3)
    axes.invert_yaxis()
    axes.set_title(title)
    axes.set_xlabel(unit)
    drawing.savefig(path)
    plt.close(drawing)


def distributions(path: Path, title: str, unit: str, samples: Mapping[str, Sequence[float]]) -> None:
    """The share of all samples up to a value, on a logarithmic scale."""
    drawing, axes = plt.subplots(figsize=(WIDTH, 4.5), layout="constrained")
    for label, values in samples.items():
        ordered = sorted(max(value, LEAST) for value in values)
        shares = [(place + 1) / len(ordered) for place in range(len(ordered))]
        axes.step(ordered, shares, where="post", label=label, linewidth=2 if label.startswith("oomph") else 1)
    axes.set_xscale("log")
    axes.set_title(title)
    axes.set_xlabel(unit)
    axes.set_ylabel("share of the jobs")
    axes.grid(visible=True, which="both", alpha=0.3)
    axes.legend()
    drawing.savefig(path)
    plt.close(drawing)


def lines(
    path: Path,
    title: str,
    x: str,
    y: str,
    series: Mapping[str, Sequence[tuple[float, float]]],
    *,
    log_x: bool = False,
) -> None:
    """One curve a series; its points are medians."""
    drawing, axes = plt.subplots(figsize=(WIDTH, 4.5), layout="constrained")
    for label, points in series.items():
        axes.plot([point[0] for point in points], [point[1] for point in points], marker="o", label=label)
    if log_x:
        axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.set_title(title)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    drawing.savefig(path)
    plt.close(drawing)
