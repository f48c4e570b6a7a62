"""`report.html`: one page, no scripts, no outside files, made from `report.json` alone."""

import html
from collections.abc import Mapping
from typing import Any

from services.cli.report import plots
from services.cli.report.elements import STYLE, figure, table, tiles

Report = Mapping[str, Any]


def _estimate(metric: Mapping[str, Any] | None, digits: int = 4) -> str:
    if metric is None or metric.get("value") is None:
        reason = "" if metric is None else str(metric.get("reason") or "")
        return f'<span class="ci" title="{html.escape(reason)}">undefined</span>'
    text = f"{metric['value']:.{digits}f}"
    if metric.get("low") is not None:
        text += (
            f' <span class="ci">[{metric["low"]:.{digits}f}, {metric["high"]:.{digits}f}]</span>'
        )
    return text


def _ms(value: float | None) -> str:
    """A latency; there is none where no request was answered."""
    return "none" if value is None else f"{value:.1f}"


def _headline(report: Report) -> str:
    load, fm = report["load"], report["fm"]["test"]["purchase"]
    served = next(row for row in report["verticals"] if row["row"] == report["bundle"]["row"])
    ratio = served["transfer_ratio"]
    return tiles(
        [
            (f"{fm['auc']['value']:.3f}", "foundation model AUC, test weeks"),
            (f"{served['test']['purchase']['auc']['value']:.3f}", "served vertical's AUC"),
            ("n/a" if ratio is None else f"{ratio:.2f}", "transfer ratio of the served row"),
            (
                f"{_ms(load['steady']['p50_ms'])} / {_ms(load['steady']['p99_ms'])} ms",
                f"p50 / p99, {load['rate_qps']:g} a second, {load['num_candidates']} candidates",
            ),
            (f"{report['parity']['max_abs_difference']:.1e}", "largest offline-online difference"),
        ]
    )


def _data(report: Report) -> str:
    data = report["data"]
    counts = [
        ("impressions", data["num_impressions"]),
        ("users", data["num_users"]),
        ("items", data["num_items"]),
        *((f"{name} events", count) for name, count in data["events"].items()),
    ]
    windows = [
        (html.escape(name), f"{w['rows']:,}", f"{w['rate_frac']:.3f}")
        for name, w in data["windows"].items()
    ]
    return (
        "<h2>What was read</h2>"
        + tiles((f"{count:,}", name) for name, count in counts)
        + "<br>"
        + table(("window", "impressions", "purchase rate"), windows)
        + f"<p class='lead'>{html.escape(data['caveat'])}</p>"
    )


METRICS = ("ne", "auc", "gauc", "calibration")


def _quality(report: Report) -> str:
    rows = [
        (html.escape(name), *(_estimate(result["purchase"].get(m)) for m in METRICS), "", "")
        for name, result in report["baselines"].items()
    ]
    rows.append(
        (
            "foundation model",
            *(_estimate(report["fm"]["test"]["purchase"].get(m)) for m in METRICS),
            "",
            "1",
        )
    )
    marked = set()
    for row in report["verticals"]:
        if row["row"] == report["bundle"]["row"]:
            marked.add(len(rows))
        ratio = row["transfer_ratio"]
        cells = (_estimate(row["test"]["purchase"].get(m)) for m in METRICS)
        gain = _estimate(row["ne_difference_to_base"]["purchase"])
        shown = "n/a" if ratio is None else f"{ratio:.3f}"
        rows.append((html.escape(row["row"]), *cells, gain, shown))
    head = (
        "model, objective <code>purchase</code>",
        "NE",
        "AUC",
        "gAUC",
        "calibration",
        "NE - base",
        "transfer",
    )
    note = (
        "Test weeks only. Brackets are 95 % intervals from resampling users. Lower NE is better, "
        "1.0 predicts the base rate. Transfer = (NE base - NE row) / (NE base - NE foundation "
        "model); NE - base is paired on the same rows. The shaded row is served. "
        "<code>raw</code> is the control: the same encoder over "
        "the same events without the foundation model's vectors."
    )
    return (
        "<h2>Ranking quality</h2>"
        + table(head, rows, marked=frozenset(marked))
        + f"<p class='lead'>{note}</p>"
    )


def _quality_plots(report: Report) -> str:
    served = {report["bundle"]["row"], "foundation model"}
    points: list[plots.Point] = []
    named = [*report["baselines"].items(), ("foundation model", report["fm"]["test"])]
    named += [(row["row"], row["test"]) for row in report["verticals"]]
    for name, result in named:
        ne = result["purchase"]["ne"]
        points.append((name, ne["value"], ne["low"], ne["high"]))
    ratios: list[plots.Point] = [
        (row["row"], row["transfer_ratio"], None, None)
        for row in report["verticals"]
        if row["transfer_ratio"] is not None
    ]
    ne_plot = plots.ranked_points(
        points,
        xlabel="normalised entropy on test weeks (lower is better)",
        highlight=served,
        reference=1.0,
    )
    ratio_plot = plots.ranked_points(
        ratios, xlabel="transfer ratio", highlight=served, reference=0.0
    )
    return figure(ne_plot, "NE by model. Dashed: a model that predicts the base rate.") + figure(
        ratio_plot, "How much of the foundation model's gain reaches each vertical model."
    )


def _other_objectives(report: Report) -> str:
    rows = []
    for objective, result in report["fm"]["test"].items():
        if objective != "purchase":
            rows.append(
                (
                    f"foundation model, {html.escape(objective)}",
                    *(_estimate(result.get(m)) for m in METRICS),
                )
            )
        for surface, cut in report["fm"]["by_surface"].get(objective, {}).items():
            label = f"foundation model, {html.escape(objective)} on {html.escape(surface)}"
            rows.append((label, *(_estimate(cut.get(m)) for m in METRICS)))
    for row in report["verticals"]:
        for objective, result in row["test"].items():
            if objective != "purchase":
                label = f"{html.escape(row['row'])}, {html.escape(objective)}"
                rows.append((label, *(_estimate(result.get(m)) for m in METRICS)))
    return "<h2>By objective and surface</h2>" + table(
        ("slice", "NE", "AUC", "gAUC", "calibration"), rows
    )


def _serving(report: Report) -> str:
    load, replay, parity = report["load"], report["replay"], report["parity"]
    curve = plots.latency_curve(load["phases"], budget_ms=load["budget_ms"])
    tiers = plots.share_bar(
        replay["tier_share"], title="share of candidates by lookup tier, replay"
    )
    count_names = ("planned", "ok", "degraded", "refused", "failed", "late")
    counts = [
        (
            name,
            *(_ms(p[key]) for key in ("p50_ms", "p95_ms", "p99_ms")),
            *(f"{p['counts'][count]:,}" for count in count_names),
        )
        for name, p in load["phases"].items()
    ]
    timing = (
        f"Engine <code>{html.escape(report['bundle']['engine'])}</code>. {load['requests']:,} "
        f"requests of {load['num_candidates']} candidates at {load['rate_qps']:g} a second, "
        "open loop (Poisson), latency counted from the moment each request was due. Half-way the "
        "precompute worker was killed and the store emptied."
    )
    agree = (
        f"{parity['rows']:,} test rows scored through the endpoint differ from the offline scores "
        f"by at most {parity['max_abs_difference']:.2e} (declared tolerance "
        f"{parity['tolerance']:.0e}). {replay['requests']:,} real test-week baskets replayed "
        f"against the live worker: AUC {replay['metrics']['purchase']['auc']['value']:.4f}."
    )
    return (
        "<h2>Serving</h2>"
        + f"<p>{timing}</p>"
        + figure(curve, "Latency by percentile before and after the fault.")
        + table(("phase", "p50 ms", "p95 ms", "p99 ms", *count_names), counts)
        + figure(tiers, "Where each candidate's pair vector came from.")
        + f"<p>{agree}</p>"
    )


def _basket(report: Report) -> str:
    basket = report["basket"]
    rows = [
        (
            str(line["rank"]),
            html.escape(line["label"]),
            f"{line['p']:.4f}",
            html.escape(line["tier"]),
            '<span class="yes">bought</span>' if line["bought"] else "",
        )
        for line in basket["lines"]
    ]
    intro = f"User {html.escape(str(basket['user']))}, {html.escape(basket['when'])}."
    return (
        "<h2>One ranked basket</h2>"
        + f"<p>{intro}</p>"
        + table(("rank", "product", "p(purchase)", "tier", ""), rows)
    )


def _run(report: Report) -> str:
    steps = [(html.escape(name), f"{seconds:.1f}") for name, seconds in report["seconds"].items()]
    machine = ", ".join(f"{k} {v}" for k, v in report["machine"].items())
    return (
        "<h2>The run</h2>"
        + table(("step", "seconds"), steps)
        + f"<p class='lead'>{html.escape(machine)}. Commit {html.escape(report['commit'])}. "
        + f"Schema {report['schema_id']}, space {report['space_id']}, "
        + f"bundle {html.escape(report['bundle']['id'])}.</p>"
    )


def render_page(report: Report) -> str:
    """The page of a run as HTML text; every figure on it comes from the report."""
    title = f"Gemcutter: {report['title']}"
    sections = (_data, _quality, _quality_plots, _other_objectives, _serving, _basket, _run)
    body = "".join(section(report) for section in sections)
    return (
        "<!doctype html><html lang='en'><meta charset='utf-8'>"
        f"<meta name='viewport' content='width=device-width'><title>{html.escape(title)}</title>"
        f"<style>{STYLE}</style><h1>{html.escape(title)}</h1>"
        f"<p class='lead'>{html.escape(report['created_at'])}. From a real event log to a ranked "
        f"answer.</p>{_headline(report)}{body}</html>\n"
    )
