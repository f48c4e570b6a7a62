"""The plots of a run report, each as an SVG string that a page can hold inline."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

INK, ACCENT, MUTED, CONTRAST = "#22252b", "#1f6f8b", "#a9b4bd", "#c8553d"
STYLE: Any = {
    "font.family": "DejaVu Sans",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": MUTED,
    "text.color": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "svg.fonttype": "none",
    "text.parse_math": False,  # names may hold dollar signs
}

Point = tuple[str, float, float | None, float | None]


def to_svg(figure: Figure) -> str:
    """Give a figure as text that a page can hold inline."""
    buffer = io.StringIO()
    figure.savefig(
        buffer, format="svg", bbox_inches="tight", transparent=True, metadata={"Date": None}
    )
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Give an empty figure, its size in inches, and its axes."""
    figure = Figure(figsize=(width, height))
    return figure, figure.subplots()


def _interval(points: Sequence[Point]) -> list[list[float]]:
    """Distances from each value down to its low and up to its high, as matplotlib wants them."""
    below = [max(0.0, value - low) if low is not None else 0.0 for _, value, low, _ in points]
    above = [max(0.0, high - value) if high is not None else 0.0 for _, value, _, high in points]
    return [below, above]


def ranked_points(
    points: Sequence[Point], *, xlabel: str, highlight: set[str], reference: float
) -> str:
    """Values with their 95 % intervals, a row each, and a line at a reference value.

    Points rather than bars: the axis need not start at zero.

    Args:
        points: (label, value, low, high), drawn from the top in this order.
        xlabel: what the axis shows, with its unit.
        highlight: labels drawn in the accent colour.
        reference: where the vertical line stands.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = new_figure(6.2, 0.3 * len(points) + 0.9)
        rows = range(len(points))
        values = [point[1] for point in points]
        colours = [ACCENT if point[0] in highlight else MUTED for point in points]
        axes.hlines(rows, [reference] * len(points), values, color=colours, linewidth=1)
        spread = _interval(points)
        axes.errorbar(values, rows, xerr=spread, fmt="none", ecolor=INK, elinewidth=1, capsize=2)
        axes.scatter(values, rows, color=colours, s=42, zorder=3)
        axes.set_yticks(rows, [point[0] for point in points])
        axes.invert_yaxis()
        axes.axvline(reference, color=CONTRAST, linewidth=1, linestyle="--")
        twin = axes.twinx()
        twin.set_ylim(axes.get_ylim())
        twin.set_yticks(rows, [f"{value:.4g}" for value in values])
        twin.tick_params(length=0)
        twin.spines["right"].set_visible(False)
        axes.set_xlabel(xlabel)
        return to_svg(figure)


def latency_curve(phases: Mapping[str, Mapping[str, Any]], *, budget_ms: float) -> str:
    """Latency by percentile, a line for each phase of a load test, with the budget drawn in.

    Args:
        phases: name to {"percentiles": [[frac, ms], ...]}; fractions from 0 to below 1.
        budget_ms: the vertical's latency budget.
    """
    with matplotlib.rc_context(STYLE):
        figure, axes = new_figure(6.2, 3.0)
        colours = [ACCENT, CONTRAST, MUTED]
        for colour, (name, phase) in zip(colours, phases.items(), strict=False):
            points = phase["percentiles"]
            nines = [1.0 / (1.0 - min(frac, 0.9999)) for frac, _ in points]
            axes.plot(nines, [ms for _, ms in points], label=name, color=colour, linewidth=1.6)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(ScalarFormatter())
        axes.yaxis.set_minor_formatter(ScalarFormatter())
        ticks = {"p50": 2, "p90": 10, "p99": 100, "p99.9": 1000}
        axes.set_xticks(list(ticks.values()), list(ticks))
        axes.xaxis.minorticks_off()
        axes.axhline(budget_ms, color=INK, linewidth=0.8, linestyle=":")
        axes.text(1.0, budget_ms * 1.05, f"budget {budget_ms:g} ms", size=8)
        axes.set_ylabel("latency from intended send, ms")
        axes.legend(frameon=False, fontsize=8)
        return to_svg(figure)


def share_bar(shares: Mapping[str, float], *, title: str) -> str:
    """One stacked bar of shares that add up to 1, largest labelled."""
    palette = ["#1f6f8b", "#5fa8a0", "#b8d8ba", "#e9c46a", "#e08e45", "#a9b4bd"]
    with matplotlib.rc_context(STYLE):
        figure, axes = new_figure(6.2, 1.2)
        left = 0.0
        for colour, (name, share) in zip(palette, shares.items(), strict=False):
            label = f"{name} {100 * share:.1f} %"
            axes.barh([0], [share], left=left, color=colour, label=label, height=0.6)
            left += share
        axes.set_xlim(0, 1)
        axes.set_yticks([])
        axes.set_xlabel(title)
        axes.legend(frameon=False, fontsize=8, ncols=2, loc="lower left", bbox_to_anchor=(0, 1))
        return to_svg(figure)
