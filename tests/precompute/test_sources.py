"""Sources: the order of delivery, positions that survive, bytes that cannot be used."""

import json
from pathlib import Path

import numpy as np
import pytest

from features.dataset import LogDataset
from features.histories import HistoryIndex
from precompute.decoding import EventDecoder
from precompute.events import BadRecord, EngagementEvent, RequestEvent, SourceError, to_columns
from precompute.sources.dataset import DatasetSource, history_events
from precompute.sources.lines import MAX_LINE_BYTES, LinesSource
from precompute.sources.source import Position
from tests.precompute.tinylog import DAY_MS, START_MS, TEST_START_MS, tiny_log

NOW_MS = TEST_START_MS + 30 * DAY_MS


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> LogDataset:
    return tiny_log(tmp_path_factory.mktemp("tiny"))


def all_of(source: DatasetSource | LinesSource, step: int = 7) -> list:
    records = []
    while batch := source.poll(step):
        records += batch
    return records


def test_a_log_is_replayed_in_the_order_in_which_it_became_known(log: LogDataset) -> None:
    records = all_of(DatasetSource(log, from_ms=TEST_START_MS))
    moments = [record.known_at_ms for record in records]
    assert moments == sorted(moments)
    assert [record.position.offset for record in records] == list(range(len(records)))
    requests = [r.event for r in records if isinstance(r.event, RequestEvent)]
    assert len(requests) == 16  # 4 days of 4 users
    purchases = [r.event for r in records if isinstance(r.event, EngagementEvent)]
    late = next(e for e in purchases if e.arrival_ms > e.at_ms)
    place = purchases.index(late)
    assert purchases[place - 1].at_ms > late.at_ms


def test_a_request_holds_its_items_with_their_context(log: LogDataset) -> None:
    (record,) = [
        r
        for r in all_of(DatasetSource(log, from_ms=TEST_START_MS))
        if isinstance(r.event, RequestEvent) and r.event.request_id == str(1000 + 4 * 16 + 2)
    ]
    shown = np.flatnonzero(log.impressions.request_ids == 1066)
    assert record.event.item_keys.tolist() == log.impressions.item_keys[shown].tolist()
    assert record.event.user_key == 2
    for name in ("spot", "shop", "surface"):
        np.testing.assert_array_equal(record.event.codes[name], log.impressions.codes[name][shown])
    np.testing.assert_array_equal(
        record.event.numeric["price"], log.impressions.numeric["price"][shown]
    )


def test_a_replay_ends_before_its_end(log: LogDataset) -> None:
    source = DatasetSource(log, from_ms=TEST_START_MS, until_ms=TEST_START_MS + DAY_MS)
    records = all_of(source)
    assert len(records) == 8
    assert source.is_ended
    assert max(record.known_at_ms for record in records) < TEST_START_MS + DAY_MS


def test_history_and_replay_share_out_the_log_without_overlap(log: LogDataset) -> None:
    before = history_events(log, known_before_ms=TEST_START_MS)
    after = all_of(DatasetSource(log, from_ms=TEST_START_MS))
    num_after = sum(isinstance(r.event, EngagementEvent) for r in after)
    assert sum(map(len, before.values())) + num_after == sum(map(len, log.events.values()))
    assert len(before["letter"]) == 2
    HistoryIndex.build(before)


def test_a_dataset_source_goes_on_behind_its_committed_position(
    log: LogDataset, tmp_path: Path
) -> None:
    path = tmp_path / "position.json"
    first = DatasetSource(log, from_ms=TEST_START_MS, position_path=path)
    records = first.poll(10)
    first.commit([records[5].position])
    again = DatasetSource(log, from_ms=TEST_START_MS, position_path=path)
    assert [r.position for r in again.replay()] == [Position(0, n) for n in range(6)]
    assert again.poll(2)[0].position == Position(0, 6)


def test_a_position_of_another_source_or_a_damaged_one_is_refused(
    log: LogDataset, tmp_path: Path
) -> None:
    path = tmp_path / "position.json"
    source = DatasetSource(log, from_ms=TEST_START_MS, position_path=path)
    source.commit([source.poll(1)[0].position])
    with pytest.raises(SourceError, match="remove the file to start over"):
        DatasetSource(log, from_ms=TEST_START_MS - DAY_MS, position_path=path)
    path.write_text("{")
    with pytest.raises(SourceError, match="not a position file"):
        DatasetSource(log, from_ms=TEST_START_MS, position_path=path)


def purchase_line(**changes: object) -> dict[str, object]:
    columns = {"item": 104, "amount": 2.5, "spot": "front"}
    line = {"kind": "engagement", "source": "purchase", "user": 1, "event_at_ms": START_MS}
    return line | {"columns": columns} | changes


def request_line(**changes: object) -> dict[str, object]:
    line = {"kind": "request", "request_id": "r1", "user": 2, "at_ms": START_MS + 5}
    line |= {"context": {"surface": "shelf", "shop": "shop 1"}, "items": [104, 999]}
    return line | {"columns": {"spot": ["rear", None], "price": [3.0, 4.0]}} | changes


def decode(log: LogDataset, line: object) -> EngagementEvent | RequestEvent | BadRecord:
    payload = line if isinstance(line, bytes) else json.dumps(line).encode()
    return EventDecoder(log.schema, log.encoder).decode(payload)


def test_a_purchase_has_the_codes_that_training_gave_its_values(log: LogDataset) -> None:
    event = decode(log, purchase_line(arrival_at_ms=START_MS + 9))
    assert isinstance(event, EngagementEvent)
    assert (event.user_key, event.item_key) == (1, 104)
    assert (event.at_ms, event.arrival_ms) == (START_MS, START_MS + 9)
    assert event.codes == {"spot": int(log.encoder.codes("spot", ["front"])[0])}
    assert event.numeric["amount"] == pytest.approx(np.log1p(2.5))


def test_a_decoded_event_fits_the_histories_of_the_log(log: LogDataset) -> None:
    event = decode(log, purchase_line())
    histories = HistoryIndex.build(log.events)
    before = histories.num_events("purchase")
    histories.append("purchase", to_columns([event]))
    assert histories.num_events("purchase") == before + 1


def test_a_request_has_one_context_code_for_each_item(log: LogDataset) -> None:
    event = decode(log, request_line())
    assert isinstance(event, RequestEvent)
    assert event.item_keys.tolist() == [104, 999]
    expected = {
        "spot": log.encoder.codes("spot", ["rear", None]),
        "shop": log.encoder.codes("shop", ["shop 1"] * 2),
        "surface": log.encoder.codes("surface", ["shelf"] * 2),
    }
    assert {name: codes.tolist() for name, codes in event.codes.items()} == {
        name: codes.tolist() for name, codes in expected.items()
    }
    assert event.numeric["price"].tolist() == [3.0, 4.0]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff\x00", "UnicodeDecodeError"),
        (b'{"user":', "JSONDecodeError"),
        (b"", "JSONDecodeError"),
        (b"[1]", "expected a JSON object, got list"),
        ({"kind": "view"}, "kind: expected 'engagement' or 'request', got 'view'"),
        (purchase_line(source="click"), "source: expected one of ['letter', 'purchase']"),
        (purchase_line(source=["x"]), "source: expected one of"),
        (purchase_line(user="Bob"), "user: "),
        (purchase_line(user=None), "user: "),
        (purchase_line(columns={"amount": 1}), "item: "),
        (purchase_line(columns=[1]), "columns: expected an object"),
        (purchase_line(event_at_ms=START_MS // 1000), "event_at_ms: expected Unix milliseconds"),
        (purchase_line(event_at_ms=float(START_MS)), "event_at_ms: expected Unix milliseconds"),
        (purchase_line(columns={"item": 104, "amount": -1}), "amount"),
        (purchase_line(columns={"item": 104, "spot": 1.5}), "categorical values"),
        (request_line(items=[]), "items: expected a list of 1 to"),
        (request_line(items="104"), "items: expected a list of 1 to"),
        (request_line(items=[104, 10**30]), "items: "),
        (request_line(columns={"spot": ["rear"]}), "columns.spot: expected 2 values"),
        (request_line(columns={"spot": ["rear", 3]}), "values of mixed"),
        (request_line(context="shelf"), "context: expected an object"),
    ],
)
def test_a_record_that_cannot_be_used_is_bad_with_its_reason_and_bytes(
    log: LogDataset, line: object, reason: str
) -> None:
    event = decode(log, line)
    assert isinstance(event, BadRecord)
    assert reason in event.reason
    assert event.payload == (line if isinstance(line, bytes) else json.dumps(line).encode())


@pytest.fixture
def event_file(tmp_path: Path) -> Path:
    lines = [json.dumps(purchase_line()), '{"user":', json.dumps(request_line())]
    path = tmp_path / "events.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def lines_source(log: LogDataset, path: Path, position: Path | None = None) -> LinesSource:
    return LinesSource(path, EventDecoder(log.schema, log.encoder), position_path=position)


def kinds(records: list) -> list[str]:
    return [type(record.event).__name__ for record in records]


def test_lines_come_in_order_bad_ones_among_them(log: LogDataset, event_file: Path) -> None:
    source = lines_source(log, event_file)
    records = all_of(source, step=2)
    assert kinds(records) == ["EngagementEvent", "BadRecord", "RequestEvent"]
    assert source.is_ended
    source.close()


def test_a_last_line_without_its_end_waits_for_the_rest(log: LogDataset, event_file: Path) -> None:
    whole = json.dumps(purchase_line(user=3))
    with event_file.open("a") as file:
        file.write(whole[:20])
    source = lines_source(log, event_file)
    assert len(all_of(source)) == 3
    with event_file.open("a") as file:
        file.write(whole[20:] + "\n")
    (record,) = source.poll(5)
    assert record.event.user_key == 3
    assert not source.is_ended
    source.close()


def test_a_line_too_long_is_bad_and_what_follows_is_read(log: LogDataset, event_file: Path) -> None:
    with event_file.open("a") as file:
        file.write("x" * (MAX_LINE_BYTES + 200_000) + "\n" + json.dumps(purchase_line()) + "\n")
    source = lines_source(log, event_file)
    records = all_of(source)
    assert kinds(records)[3:] == ["BadRecord", "EngagementEvent"]
    assert records[3].event.reason == f"longer than {MAX_LINE_BYTES} bytes"
    assert len(records[3].event.payload) == 1024
    source.close()


def test_an_event_file_goes_on_behind_its_committed_line(
    log: LogDataset, event_file: Path, tmp_path: Path
) -> None:
    position = tmp_path / "position.json"
    first = lines_source(log, event_file, position)
    records = first.poll(3)
    first.commit([records[1].position])
    assert len(list(first.replay())) == 2
    first.close()
    again = lines_source(log, event_file, position)
    assert kinds(list(again.replay())) == ["EngagementEvent", "BadRecord"]
    assert kinds(again.poll(9)) == ["RequestEvent"]
    again.close()


def test_a_file_shorter_than_its_committed_position_is_refused(
    log: LogDataset, event_file: Path, tmp_path: Path
) -> None:
    position = tmp_path / "position.json"
    first = lines_source(log, event_file, position)
    first.commit([first.poll(3)[-1].position])
    first.close()
    event_file.write_text("{}\n")
    with pytest.raises(SourceError, match="it was cut or replaced"):
        lines_source(log, event_file, position)


def test_a_missing_event_file_is_an_error_that_names_it(log: LogDataset, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"nowhere\.jsonl: cannot be opened"):
        lines_source(log, tmp_path / "nowhere.jsonl")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"event_at_ms": NOW_MS + 10**9}, "event_at_ms: expected a moment before now"),
        ({"arrival_at_ms": TEST_START_MS - 10**9}, "arrival_at_ms: expected at most 300000 ms"),
        ({"arrival_at_ms": 0}, "arrival_at_ms: expected Unix milliseconds of 1990"),
    ],
)
def test_an_event_whose_clock_is_wrong_is_set_aside(
    log: LogDataset, change: dict[str, int], told: str
) -> None:
    decoder = EventDecoder(log.schema, log.encoder, clock_s=lambda: NOW_MS / 1000)
    good = decoder.decode(json.dumps(purchase_line(event_at_ms=TEST_START_MS)).encode())
    assert isinstance(good, EngagementEvent)

    line = purchase_line(event_at_ms=TEST_START_MS) | change
    bad = decoder.decode(json.dumps(line).encode())

    assert isinstance(bad, BadRecord)
    assert told in bad.reason


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"context": {"nope": 1}}, "context: expected names of"),
        ({"columns": {"nope": [1]}}, "columns: expected names of"),
        ({"context": {"surface": "nope"}}, "surface: expected one of"),
    ],
)
def test_a_request_of_what_the_schema_does_not_know_is_set_aside(
    log: LogDataset, change: dict[str, object], told: str
) -> None:
    record = {"kind": "request", "user": 1, "at_ms": TEST_START_MS, "items": [104]}

    bad = decode(log, json.dumps(record | change).encode())

    assert isinstance(bad, BadRecord)
    assert told in bad.reason
