"""An email programme's export as a stranger might bring it: odd names, odd text, three logs.

Subscribers get mails with an offer in them. Whoever has bought in an offer's department before, or
browsed it lately, opens and clicks its mails more. Files are as a spreadsheet and two systems would
write them: semicolons and Latin-1 in one, a byte-order mark in another, ISO text with offsets here,
seconds there; ids with leading zeros; sends split over one file a month.
"""

import csv
import datetime
from pathlib import Path
from typing import Any

import numpy as np

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
DEPARTMENTS = ("Käse", "Brot & Kuchen", "Obst", "Möbel")
NUM_OFFERS, NUM_DAYS = 30, 120
BERLIN = datetime.timezone(datetime.timedelta(hours=1))

SCHEMA = """\
name: newsletter
version: 1
user: {column: "Abo-Nr.", dtype: string}
item: {column: offer code, dtype: string}
time: {column: "sent (UTC)", unit: text, timezone: UTC}
impressions:
  path: sends/*.csv
  delimiter: ";"
  request_column: mailing
  example_column: "send #"
  surface_column: slot in mail
  surfaces: [hero, grid]
items: {path: offers.csv, encoding: latin-1, delimiter: ";"}
vocabularies:
  - {name: offer, policy: fitted}
  - {name: department, policy: fitted}
  - {name: weekday, policy: fitted}
  - {name: client, policy: hashed, num_buckets: 64}
features:
  - {name: offer, of: item, kind: categorical, column: offer code, vocabulary: offer}
  - {name: department, of: item, kind: categorical, column: Abteilung, vocabulary: department}
  - {name: rebate, of: item, kind: numeric, column: "rebate %", minimum: 0, maximum: 100,
     default: 0}
  - {name: weekday, of: context, kind: categorical, column: weekday, vocabulary: weekday}
sources:
  - name: opened
    path: opens.csv
    user_column: subscriber
    time: {column: when, unit: text}
    max_length: 32
    columns:
      - {name: client, kind: categorical, column: mail client, vocabulary: client}
  - name: browsed
    path: web
    user_column: uid
    item_column: sku
    time: {column: epoch, unit: s}
    max_length: 32
    columns:
      - {name: dwell, kind: numeric, column: dwell_s, transform: log1p, minimum: 0,
         maximum: 600, outside: clip, default: 0}
  - name: bought
    path: orders.csv
    user_column: customer
    item_column: article
    time: {column: ordered_ms, unit: ms}
    arrival: {column: exported_ms, unit: ms}
    max_length: 64
    columns:
      - {name: amount, kind: numeric, column: amount, transform: log1p, minimum: 0}
objectives:
  - {name: click, kind: binary, label_column: "clicked?", attribution_window_ms: 86400000,
     bad_labels: drop}
  - {name: buy, kind: binary, label_column: "bought?", attribution_window_ms: 604800000}
verticals:
  - name: newsletter
    surfaces: [hero, grid]
    objectives: [click, buy]
    features: [offer, department, rebate, weekday, surface]
    match_features: [department]
    similarity_feature: department
    memory_source: bought
    memory_length: 16
    max_candidates: 100
    latency_budget_ms: 20
    soft_ttl_ms: 604800000
    hard_ttl_ms: 5184000000
"""


def subscriber(user: int) -> str:
    return f"{user:06d}"


def offer(item: int) -> str:
    return f"{item:03d}-A"


def write_email_campaign(folder: Path, *, num_users: int = 60, seed: int = 0) -> Path:
    """Write the schema and every file of the export."""
    rng = np.random.default_rng(seed)
    (folder / "sends").mkdir(parents=True)
    (folder / "web").mkdir()
    (folder / "schema.yaml").write_text(SCHEMA)
    likes = rng.integers(0, len(DEPARTMENTS), num_users)
    department = np.arange(NUM_OFFERS) % len(DEPARTMENTS)
    _write_offers(folder / "offers.csv", department, rng)
    _write_sends(folder / "sends", likes, department, rng)
    _write_opens(folder / "opens.csv", num_users, rng)
    _write_web(folder / "web", likes, department, rng)
    _write_orders(folder / "orders.csv", likes, department, rng)
    return folder


def _write_offers(path: Path, department: np.ndarray, rng: np.random.Generator) -> None:
    rows = [
        [offer(item), DEPARTMENTS[department[item]], f"{rng.integers(5, 50)}"]
        for item in range(NUM_OFFERS)
    ]
    _write(path, ["offer code", "Abteilung", "rebate %"], rows, delimiter=";", encoding="latin-1")


def _write_sends(
    folder: Path, likes: np.ndarray, department: np.ndarray, rng: np.random.Generator
) -> None:
    header = ["send #", "mailing", "Abo-Nr.", "sent (UTC)", "slot in mail", "offer code"]
    header += ["weekday", "clicked?", "bought?"]
    months: dict[str, list[list[Any]]] = {}
    number = 0
    for day in range(10, NUM_DAYS, 3):
        for user in range(len(likes)):
            moment = START + datetime.timedelta(days=day, hours=7, seconds=user)
            for place, item in enumerate(rng.choice(NUM_OFFERS, 5, replace=False)):
                p_click = 0.55 if department[item] == likes[user] else 0.06
                click = int(rng.random() < p_click)
                row = [number, f"m{day}-{user}", subscriber(user)]
                row += [
                    moment.replace(tzinfo=None).isoformat(sep=" "),
                    "hero" if place == 0 else "grid",
                ]
                row += [offer(item), f"{moment:%a}", click, int(click and rng.random() < 0.3)]
                months.setdefault(f"{moment:%Y-%m}", []).append(row)
                number += 1
    first = next(iter(months.values()))
    first[3][7], first[8][7] = "", "nan"  # two sends whose tracking failed
    for month, rows in months.items():
        _write(folder / f"sends-{month}.csv", header, rows, delimiter=";", encoding="utf-8-sig")


def _write_opens(path: Path, num_users: int, rng: np.random.Generator) -> None:
    rows = []
    for user in range(num_users):
        for day in sorted(rng.choice(NUM_DAYS, 15, replace=False)):
            moment = START + datetime.timedelta(days=int(day), hours=float(rng.uniform(8, 22)))
            local = moment.astimezone(BERLIN).isoformat(timespec="seconds")
            rows.append([subscriber(user), local, rng.choice(["Outlook", "Mail, iOS", ""])])
    rng.shuffle(rows)
    _write(path, ["subscriber", "when", "mail client"], rows)


def _write_web(
    folder: Path, likes: np.ndarray, department: np.ndarray, rng: np.random.Generator
) -> None:
    for name, users in (("a.csv", range(0, len(likes), 2)), ("b.csv", range(1, len(likes), 2))):
        rows = []
        for user in users:
            for day in range(0, NUM_DAYS, 4):
                moment = START + datetime.timedelta(days=day, hours=float(rng.uniform(9, 21)))
                item = _liked(likes[user], department, rng)
                dwell_s = round(float(rng.exponential(60)), 1) if rng.random() > 0.02 else 7200
                rows.append([subscriber(user), offer(item), int(moment.timestamp()), dwell_s])
        _write(folder / name, ["uid", "sku", "epoch", "dwell_s"], rows)


def _write_orders(
    path: Path, likes: np.ndarray, department: np.ndarray, rng: np.random.Generator
) -> None:
    rows = []
    for user in range(len(likes)):
        for day in range(0, NUM_DAYS, 5):
            moment = START + datetime.timedelta(days=day, hours=float(rng.uniform(9, 21)))
            at_ms = int(moment.timestamp() * 1000)
            exported_ms = at_ms + int(rng.choice([0, 3_600_000, 86_400_000]))
            item = _liked(likes[user], department, rng)
            amount = f"{rng.uniform(2, 90):.2f}"
            rows.append([subscriber(user), offer(item), at_ms, exported_ms, amount])
    rng.shuffle(rows)
    _write(path, ["customer", "article", "ordered_ms", "exported_ms", "amount"], rows)


def _liked(like: int, department: np.ndarray, rng: np.random.Generator) -> int:
    of_taste = np.flatnonzero(department == like)
    return int(rng.choice(of_taste)) if rng.random() < 0.85 else int(rng.integers(NUM_OFFERS))


def _write(
    path: Path,
    header: list[str],
    rows: list[list[Any]],
    *,
    delimiter: str = ",",
    encoding: str = "utf-8",
) -> None:
    with path.open("w", newline="", encoding=encoding) as file:
        writer = csv.writer(file, delimiter=delimiter)
        writer.writerow(header)
        writer.writerows(rows)
