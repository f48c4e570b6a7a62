"""Dead letters on disk: whole, once, and readable."""

import json
from pathlib import Path

import pytest

from precompute.deadletters import DeadLetter, DeadLetterFile
from precompute.events import SourceError
from precompute.sources.source import Position


def letter(offset: int, payload: bytes = b"{") -> DeadLetter:
    return DeadLetter(
        source="events.jsonl", position=Position(0, offset), reason="half", payload=payload
    )


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_a_letter_says_where_it_came_from_and_why(tmp_path: Path) -> None:
    path = tmp_path / "deadletter.jsonl"
    assert DeadLetterFile(path).write([letter(7)]) == 1
    assert lines(path) == [
        {"source": "events.jsonl", "partition": 0, "offset": 7, "reason": "half", "payload": "{"}
    ]


def test_bytes_that_are_no_text_are_kept_exactly(tmp_path: Path) -> None:
    path = tmp_path / "deadletter.jsonl"
    DeadLetterFile(path).write([letter(7, b"\xff\x00")])
    assert lines(path)[0]["payload_base64"] == "/wA="


def test_a_record_delivered_again_by_a_restart_is_kept_once(tmp_path: Path) -> None:
    path = tmp_path / "deadletter.jsonl"
    DeadLetterFile(path).write([letter(7), letter(9)])
    assert DeadLetterFile(path).write([letter(7), letter(11)]) == 1
    assert [line["offset"] for line in lines(path)] == [7, 9, 11]


def test_half_a_line_left_by_a_crash_is_cut_off_and_its_record_kept_again(tmp_path: Path) -> None:
    path = tmp_path / "deadletter.jsonl"
    DeadLetterFile(path).write([letter(7)])
    with path.open("a") as file:
        file.write('{"source": "events.jsonl", "parti')
    DeadLetterFile(path).write([letter(9)])
    assert [line["offset"] for line in lines(path)] == [7, 9]


def test_letters_that_cannot_be_kept_are_an_error(tmp_path: Path) -> None:
    letters = DeadLetterFile(tmp_path / "no folder" / "deadletter.jsonl")
    assert letters.write([]) == 0
    with pytest.raises(SourceError, match="cannot keep dead letters"):
        letters.write([letter(7)])
