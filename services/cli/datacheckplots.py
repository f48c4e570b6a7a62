"""The plots of a data check, each as an SVG string that a page can hold inline."""

from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence

import matplotlib
from matplotlib.axes import Axes
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from features.datacheck.report import Lengths, RateSeries, SingleFeature, Timeline
from services.cli.report.plots import (
    ACCENT,
    CONTRAST,
    INK,
    MUTED,
    STYLE,
    Point,
    new_figure,
    ranked_points,
    to_svg,
)

MAX_LINES = 8
_PALETTE = (ACCENT, CONTRAST, "#5fa8a0", "#e9c46a", "#7b5ea7", "#8a9a5b", "#b56576", "#4f6d7a")
_DAY_MS = 86_400_000  # axes of dates count days from 1970, UTC
_MIN_ROWS = 30  # of a step, for its rate to be drawn
_MAX_FEATURES = 12

Windows = Mapping[str, tuple[int, int]]


@contextlib.contextmanager
def _styled() -> Iterator[None]:
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        # The text stays text: the browser has the letters that this font lacks.
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def rows_over_time(timeline: Timeline, windows: Windows) -> str:
    """Impressions, and the events of each source, by step of time; windows are shaded."""
    counts = {"impressions": timeline.num_impressions, **timeline.num_events}
    with _styled():
        figure = Figure(figsize=(7.4, 0.95 * len(counts) + 0.6))
        panels = figure.subplots(len(counts), 1, sharex=True, squeeze=False)[:, 0]
        at = _moments(timeline)
        for axes, (name, rows) in zip(panels, counts.items(), strict=True):
            axes.fill_between(
                at, [*rows, rows[-1]], step="post", color=ACCENT, alpha=0.75, linewidth=0
            )
            axes.set_ylim(bottom=0)
            axes.set_title(name, loc="left", size=8, pad=2)
            axes.locator_params(axis="y", nbins=3)
            _shade(axes, windows, is_named=axes is panels[0])
        _date_axis(panels[-1])
        figure.tight_layout(h_pad=0.4)
        return to_svg(figure)


def rate_over_time(timeline: Timeline, series: Sequence[RateSeries], windows: Windows) -> str:
    """Label rate of one objective by step of time, a line for each surface, at most eight.

    Steps with fewer than 30 rows are left out.
    """
    with _styled():
        figure, axes = new_figure(7.4, 2.8)
        at = _moments(timeline)[:-1]
        colours = iter(_PALETTE)
        for one in series[: MAX_LINES + 1]:
            rates = [
                positive / rows if rows >= _MIN_ROWS else math.nan
                for positive, rows in zip(one.num_positive, one.num_rows, strict=True)
            ]
            whole = not one.surface
            axes.plot(
                at,
                rates,
                color=INK if whole else next(colours),
                linewidth=1.8 if whole else 1.1,
                marker="." if len(at) < 40 else None,
                label="all" if whole else _label(one.surface),
            )
        axes.set_ylim(bottom=0)
        axes.set_ylabel("label rate")
        _shade(axes, windows, is_named=True)
        _date_axis(axes)
        axes.legend(frameon=False, fontsize=8, ncols=3, loc="upper left", bbox_to_anchor=(0, -0.15))
        return to_svg(figure)


def history_lengths(lengths: Sequence[Lengths]) -> str:
    """Share of impressions by the number of events that they see, a bar for each window."""
    with _styled():
        figure, axes = new_figure(7.4, 2.2)
        upper = lengths[0].upper
        width = 0.8 / len(lengths)
        for number, (one, colour) in enumerate(zip(lengths, (MUTED, ACCENT), strict=False)):
            places = [
                place + (number - (len(lengths) - 1) / 2) * width for place in range(len(upper))
            ]
            shares = [count / max(one.num_rows, 1) for count in one.num_by_upper]
            axes.bar(places, shares, width=width, color=colour, label=one.window)
        axes.set_xticks(range(len(upper)), _bin_names(upper), size=7)
        axes.set_xlabel("visible events")
        axes.set_ylabel("share of impressions")
        axes.legend(frameon=False, fontsize=8)
        return to_svg(figure)


def hours_of_day(by_name: Mapping[str, Sequence[int]]) -> str:
    """Share of rows by hour of the day, a line for impressions and each source, at most eight."""
    with _styled():
        figure, axes = new_figure(7.4, 2.2)
        for (name, counts), colour in zip(by_name.items(), (INK, *_PALETTE), strict=False):
            total = max(sum(counts), 1)
            shares = [count / total for count in counts]
            axes.plot(range(24), shares, color=colour, label=_label(name), linewidth=1.2)
        axes.set_xticks(range(0, 24, 3))
        axes.set_ylim(bottom=0)
        axes.set_xlabel("hour of the day, UTC")
        axes.set_ylabel("share of rows")
        axes.legend(frameon=False, fontsize=8, ncols=2)
        return to_svg(figure)


def unseen_shares(shares: Sequence[tuple[str, float]]) -> str:
    """Shares of the test impressions, largest first."""
    points: list[Point] = [(name, share, None, None) for name, share in shares]
    points.sort(key=lambda point: -point[1])
    with _styled():
        return ranked_points(
            points,
            xlabel="share of test impressions with a value that is new to them",
            highlight={name for name, share, *_ in points if share > 0.5},
            reference=0.0,
        )


def single_features(features: Sequence[SingleFeature], *, highlight: set[str]) -> str:
    """AUC of the best single features of one objective."""
    points: list[Point] = [
        (f"{one.of}: {one.feature}", one.auc, None, None) for one in features if one.auc is not None
    ]
    with _styled():
        return ranked_points(
            points[:_MAX_FEATURES],
            xlabel="AUC of the feature alone",
            highlight=highlight,
            reference=0.5,
        )


def _moments(timeline: Timeline) -> list[float]:
    """Where each step begins, and where the last one ends."""
    edges = [*timeline.starts_ms, timeline.starts_ms[-1] + timeline.width_ms]
    return [at_ms / _DAY_MS for at_ms in edges]


def _shade(axes: Axes, windows: Windows, *, is_named: bool) -> None:
    for number, (name, (start_ms, end_ms)) in enumerate(windows.items()):
        start, end = start_ms / _DAY_MS, end_ms / _DAY_MS
        axes.axvspan(start, end, color=MUTED, alpha=0.28 if number % 2 else 0.12, lw=0, zorder=0)
        if is_named:
            axes.annotate(
                name,
                (start, 1.0),
                xycoords=("data", "axes fraction"),
                size=7,
                xytext=(2, -8),
                textcoords="offset points",
            )


def _date_axis(axes: Axes) -> None:
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    formatter = ConciseDateFormatter(locator)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_formatter(formatter)


def _bin_names(upper: Sequence[int]) -> list[str]:
    names = []
    for below, edge in zip((-1, *upper), upper, strict=False):
        names.append(f"{edge:,}" if edge - below <= 1 else f"{below + 1:,}-{edge:,}")
    return names


def _label(name: str) -> str:
    """Legends leave out names that begin with an underscore."""
    return f" {name}" if name.startswith("_") else name
