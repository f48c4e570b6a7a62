"""What pages are made of: one style, tables, plots with captions, tiles. No scripts, no links."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, sans-serif; color: #22252b; background: #fbfaf7;
       max-width: 60rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .5rem; }
.lead { color: #555c66; margin: 0 0 1.6rem; max-width: 46rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #e4e2dc; }
th { font-weight: 600; color: #555c66; } th:first-child, td:first-child { text-align: left; }
tr.served td { background: #eaf3f5; }
.ci { color: #7a828c; font-size: .8em; display: block; white-space: nowrap; }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(11rem, 1fr)); gap: .8rem; }
.tile { background: #fff; border: 1px solid #e4e2dc; border-radius: 8px; padding: .7rem .9rem; }
.tile b { display: block; font-size: 1.35rem; } .tile span { color: #555c66; font-size: .85rem; }
figure { margin: .6rem 0; } figure svg { max-width: 100%; height: auto; }
figcaption { color: #555c66; font-size: .88rem; }
.yes { color: #1d7a4f; font-weight: 600; } code { background: #f0eee8; padding: 0 .25rem; }
"""


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, marked: frozenset[int] = frozenset()
) -> str:
    """Give a table; cells are HTML already, the caller escapes what came from data.

    Args:
        head: names of the columns.
        rows: of cells.
        marked: numbers of rows to shade.
    """
    lines = ["<table><tr>", *(f"<th>{cell}</th>" for cell in head), "</tr>"]
    for number, row in enumerate(rows):
        kind = ' class="served"' if number in marked else ""
        lines.append(f"<tr{kind}>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>")
    return "".join([*lines, "</table>"])


def figure(svg: str, caption: str) -> str:
    """Give a plot, an SVG, with what it shows."""
    return f"<figure>{svg}<figcaption>{caption}</figcaption></figure>"


def tiles(pairs: Iterable[tuple[str, str]]) -> str:
    """Give figures with their names, large."""
    inner = (
        f'<div class="tile"><b>{value}</b><span>{label}</span></div>' for value, label in pairs
    )
    return f'<div class="tiles">{"".join(inner)}</div>'
