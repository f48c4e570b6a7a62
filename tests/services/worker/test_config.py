"""The command line of the worker."""

from pathlib import Path

import pytest

from services.worker.config import STORE_VARIABLE, parse_settings

NEEDED = ["--dataset", "data", "--fm", "runs/fm"]


def test_what_is_not_given_has_stated_defaults() -> None:
    settings = parse_settings([*NEEDED, "--store", "redis://localhost"], {})
    assert settings.state == Path("runs/fm/worker")
    assert settings.start is None
    assert not settings.is_following
    assert settings.max_events == 256


def test_the_store_may_come_from_the_environment() -> None:
    settings = parse_settings(NEEDED, {STORE_VARIABLE: "redis://elsewhere"})
    assert settings.store == "redis://elsewhere"


def test_a_password_is_not_shown() -> None:
    settings = parse_settings([*NEEDED, "--store", "redis://me:secret@host:6379/0"], {})
    assert settings.shown()["store"] == "redis://me:***@host:6379/0"
    assert "secret" not in str(settings.shown())
    assert settings.store == "redis://me:secret@host:6379/0"


def test_moments_are_milliseconds_or_splits() -> None:
    arguments = [*NEEDED, "--store", "x", "--from", "tune", "--until", "1700000000000"]
    settings = parse_settings(arguments, {})
    assert (settings.start, settings.end) == ("tune", 1_700_000_000_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (NEEDED, "--store: give a store URL here or in GEMCUTTER_STORE"),
        ([*NEEDED, "--store", "x", "--from", "yesterday"], "expected Unix milliseconds or one of"),
        ([*NEEDED, "--store", "x", "--max-events", "0"], "expected a number of 1 or more"),
        (["--store", "x"], "--dataset"),
        ([*NEEDED, "--store", "x", "--speed", "2"], "unrecognized arguments"),
    ],
)
def test_a_wrong_command_line_ends_with_code_2_and_says_what_was_expected(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_settings(arguments, {})
    assert end.value.code == 2
    assert message in capsys.readouterr().err


def test_help_teaches_the_commit_order_exit_codes_and_an_example(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as end:
        parse_settings(["--help"], {})
    assert end.value.code == 0
    text = capsys.readouterr().out
    for part in ("commit order", "exit codes", "deadletter.jsonl", "examples", "--follow"):
        assert part in text
