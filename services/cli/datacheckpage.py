"""The page of a data check: no scripts, no outside files, made from the report alone."""

from __future__ import annotations

import html
from collections.abc import Iterator

from features.datacheck.report import DataReport, LeakReport, SourceReport
from services.cli import datacheckplots as plots
from services.cli.report.elements import STYLE, figure, table, tiles

_MAX_SINGLE = 12
_VERDICT = """
.verdict { display: inline-block; padding: .15rem .7rem; border-radius: 1rem; color: #fff;
           font-weight: 600; } .good { background: #1d7a4f; } .bad { background: #b3402a; }
li { margin: .25rem 0; } .bad-text { color: #b3402a; }
"""


def render_check(report: DataReport) -> str:
    """Give the page as HTML text; every figure on it comes from the report."""
    title = f"Gemcutter: data check of {report.folder}"
    verdict = ("bad", "not trainable") if report.errors else ("good", "trainable")
    sections = [_stops(report), _remarks(report)]
    if report.num_impressions:
        sections += [_rows(report), _labels(report), _features(report), _events(report)]
        sections += [_times(report), *([_leaks(report.leaks)] if report.leaks else [])]
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width'><title>{html.escape(title)}</title>"
        f"<style>{STYLE}{_VERDICT}</style><h1>{html.escape(title)}</h1>"
        f"<p class='lead'><span class='verdict {verdict[0]}'>{verdict[1]}</span></p>"
        f"{_headline(report)}{''.join(sections)}</html>\n"
    )


def _headline(report: DataReport) -> str:
    if not report.num_impressions:
        return ""
    counts = (
        ("impressions", report.num_impressions),
        ("requests", report.num_requests),
        ("users", report.num_users),
        ("items", report.num_items),
    )
    pairs = [(f"{count:,}", name) for name, count in counts]
    return tiles([*pairs, (f"{report.span.first}", f"to {report.span.last}")])


def _stops(report: DataReport) -> str:
    if not report.errors:
        return ""
    if report.rejected:
        rows = [
            (
                html.escape(bad.place),
                html.escape(bad.problem),
                f"{bad.num_rows:,}",
                ", ".join(map(str, bad.first_rows)),
                html.escape(bad.example),
                html.escape(bad.hint),
            )
            for bad in report.rejected
        ]
        head = ("file and column", "what is wrong", "rows", "first rows", "the first holds", "hint")
        note = "Rows are counted from 0 in their file, a CSV header not counted."
        return f"<h2>What would be rejected</h2>{table(head, rows)}<p class='lead'>{note}</p>"
    lines = "".join(f"<li class='bad-text'>{html.escape(line)}</li>" for line in report.errors)
    return f"<h2>What stops training</h2><ul>{lines}</ul>"


def _remarks(report: DataReport) -> str:
    dropped = [
        f"{count:,} impressions are left out: their label of {name} is missing or not 0 or 1"
        for name, count in (report.num_dropped or {}).items()
    ]
    lines = "".join(f"<li>{html.escape(line)}</li>" for line in [*report.warnings, *dropped])
    return f"<h2>Worth a second look</h2><ul>{lines}</ul>" if lines else ""


def _rows(report: DataReport) -> str:
    windows = report.windows_ms or {}
    assert report.timeline is not None
    rows = [(html.escape(name), f"{n:,}") for name, n in (report.rows_by_window or {}).items()]
    plot = figure(
        plots.rows_over_time(report.timeline, windows),
        f"Rows by step of {_duration(report.timeline.width_ms)}, the windows of splits.yaml "
        "shaded. Events outside the impressions' time are not drawn.",
    )
    again = report.repeats.num_same_key if report.repeats else 0
    note = (
        f"{again:,} impressions are of the same request, user, item, surface and moment as another."
    )
    body = table(("window", "impressions"), rows) + f"<p class='lead'>{note}</p>"
    return "<h2>Rows</h2>" + plot + body


def _labels(report: DataReport) -> str:
    assert report.timeline is not None
    rows = [
        (
            html.escape(rate.window),
            html.escape(rate.surface or "all"),
            html.escape(rate.objective),
            f"{rate.num_rows:,}",
            f"{rate.num_positive:,}",
            _frac(rate.rate_frac),
        )
        for rate in report.label_rates
    ]
    figures = []
    for objective in dict.fromkeys(one.objective for one in report.timeline.rates):
        series = [one for one in report.timeline.rates if one.objective == objective]
        series.sort(key=lambda one: (bool(one.surface), -sum(one.num_rows)))
        svg = plots.rate_over_time(report.timeline, series, report.windows_ms or {})
        left_out = max(0, len(series) - 1 - plots.MAX_LINES)
        more = f" {left_out} smaller surfaces are not drawn." if left_out else ""
        figures.append(figure(svg, f"Rate of {html.escape(objective)} by surface.{more}"))
    head = ("window", "surface", "objective", "rows", "positive", "rate")
    return "<h2>Label rates</h2>" + "".join(figures) + table(head, rows)


def _features(report: DataReport) -> str:
    unseen = [("user id", report.unseen.user_frac), ("item id", report.unseen.item_frac)]
    unseen += [(f"{one.of}: {one.feature}", one.unseen_frac) for one in report.features]
    known = [(name, frac) for name, frac in unseen if frac is not None]
    plot = ""
    if known:
        caption = (
            "Test impressions whose user, item or value no impression before the test window had, "
            "or whose value is not in the vocabulary."
        )
        plot = figure(plots.unseen_shares(known), caption)
    shares = [
        (
            html.escape(f"{one.of}: {one.feature}"),
            html.escape(one.vocabulary),
            f"{one.num_codes:,}",
            _frac(one.null_frac),
            _frac(one.unknown_frac),
            _frac(one.unseen_frac),
        )
        for one in report.features
    ]
    head = ("feature", "vocabulary", "codes", "null", "unknown", "unseen in test")
    note = "Shares of the impressions; of the events for columns of a source."
    hashed = [
        f"{html.escape(name)} {frac:.1%}" for name, frac in (report.collision_frac or {}).items()
    ]
    if hashed:
        note += f" Values that share their code, hashed vocabularies: {', '.join(hashed)}."
    first = "<h2>Features</h2>" + plot + table(head, shares) + f"<p class='lead'>{note}</p>"
    return first + _columns(report)


def _columns(report: DataReport) -> str:
    rows = [
        (
            html.escape(f"{one.table}: {one.column}"),
            html.escape(one.feature),
            f"{one.num_rows:,}",
            f"{one.num_null:,}",
            _frac(one.null_frac),
            f"{one.num_unknown:,}",
            f"{one.num_clipped:,}",
        )
        for one in report.columns
    ]
    head = ("table and column", "feature", "rows", "null", "share", "unknown", "clipped")
    return "<h2>Nulls by column</h2>" + table(head, rows)


def _events(report: DataReport) -> str:
    rows = [
        (
            html.escape(one.source),
            f"{one.num_events:,}",
            f"{one.num_users:,}",
            f"{one.span.first} to {one.span.last}" if one.num_events else "none",
            f"{one.repeats.num_exact:,}",
            f"{one.repeats.num_same_key:,}",
        )
        for one in report.sources
    ]
    head = ("source", "events", "users", "span", "exact repeats", "same user, moment, item")
    return (
        "<h2>Events and histories</h2>" + table(head, rows) + "".join(map(_lengths, report.sources))
    )


def _lengths(source: SourceReport) -> str:
    parts = []
    for one in source.lengths:
        found = ", ".join(f"{name} {n:,}" for name, n in one.percentiles.items())
        parts.append(f"{one.window}: {_frac(one.empty_frac)} see none; {found or 'no impressions'}")
    caption = f"Events of {source.source} that an impression may see. " + ". ".join(parts) + "."
    return figure(plots.history_lengths(source.lengths), html.escape(caption))


def _times(report: DataReport) -> str:
    rows = []
    for source in report.sources:
        clock = source.clock
        delays = ", ".join(f"{name} {_duration(ms)}" for name, ms in clock.delay_ms.items())
        rows.append(
            (
                html.escape(source.source),
                *(f"{n:,}" for n in (clock.num_late, clock.num_early)),
                *(f"{n:,}" for n in (clock.num_before, clock.num_after)),
                f"{clock.commonest_time} ({_frac(clock.commonest_time_frac)})",
                delays or "no arrivals declared",
            )
        )
    head = (
        "source",
        "arrived late",
        "arrived before they happened",
        "before the history's start",
        "after the last impression",
        "commonest second, UTC",
        "delay of arrival",
    )
    hours = {one.source: one.clock.num_by_hour for one in report.sources}
    plot = plots.hours_of_day({"impressions": report.num_by_hour, **hours})
    caption = "Rows by hour. A curve that is shifted against the others may have a wrong zone."
    return "<h2>Clocks</h2>" + table(head, rows) + figure(plot, caption)


def _leaks(leaks: LeakReport) -> str:
    rebuilt = (
        f"{leaks.num_rebuilt:,} histories of test impressions were built again without any event "
        f"that was not known at their moment; {leaks.num_different:,} came out different."
    )
    intro = (
        f"On {leaks.num_rows:,} impressions. Rates are learned on one half and judged on the "
        "other. A single feature with an AUC above 0.98 or an NE below 0.2 is a likely leak."
    )
    head = (
        "source and objective",
        "own item among the user's events",
        "of positives",
        "of negatives",
    )
    rows = [
        (
            html.escape(f"{one.source}, {one.objective}"),
            f"{one.when}" + (f", within {_duration(one.within_ms)}" if one.within_ms else ""),
            _frac(one.positive_frac),
            _frac(one.negative_frac),
        )
        for one in leaks.own_item
    ]
    note = (
        "Events before the impression are seen by it; those at its moment and after are hidden, "
        "and may well be the outcome itself."
    )
    own = table(head, rows) + f"<p class='lead'>{note}</p>" if rows else ""
    singles = "".join(_single_features(leaks))
    return f"<h2>Leaks</h2><p>{rebuilt}</p><p>{intro}</p>{singles}{own}"


def _single_features(leaks: LeakReport) -> Iterator[str]:
    for objective in dict.fromkeys(one.objective for one in leaks.features):
        of_objective = [one for one in leaks.features if one.objective == objective]
        known = [one for one in of_objective if one.auc is not None]
        name = html.escape(objective)
        if not known:
            yield f"<p>{name}: too few rows of a class to judge single features.</p>"
            continue
        suspects = {f"{one.of}: {one.feature}" for one in known if one.is_likely_leak}
        svg = plots.single_features(known, highlight=suspects)
        yield figure(svg, f"The best single features for {name}.")
        rows = [
            (html.escape(f"{one.of}: {one.feature}"), f"{one.auc:.4f}", f"{one.ne:.4f}")
            for one in known[:_MAX_SINGLE]
        ]
        yield table((f"feature alone, {name}", "AUC", "NE"), rows)


def _frac(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _duration(ms: int) -> str:
    for unit, per_unit in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1000)):
        if abs(ms) >= per_unit:
            return f"{ms / per_unit:.3g} {unit}"
    return f"{ms} ms"
