"""Settings from the command line."""

from pathlib import Path

import pytest

from services.ranker.config import RankerConfig, parse_config

ARGUMENTS = ["--bundle", "a", "--bundle", "b", "--store", "redis://user:secret@host:1/0"]


def test_flags_become_settings() -> None:
    config = parse_config([*ARGUMENTS, "--store-timeout-ms", "3.5", "--max-running", "2"])
    assert config.bundles == (Path("a"), Path("b"))
    assert (config.store_timeout_ms, config.max_running) == (3.5, 2)
    assert config.has_reflection
    assert not parse_config([*ARGUMENTS, "--no-reflection"]).has_reflection


def test_what_is_shown_has_no_password() -> None:
    shown = str(parse_config(ARGUMENTS).shown())
    assert "secret" not in shown
    assert "user:***@host:1" in shown


@pytest.mark.parametrize("name", ["store_timeout_ms", "max_running", "refresh_ms"])
def test_numbers_that_cannot_work_are_refused_by_name(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: expected above 0 and finite, got 0"):
        RankerConfig(bundles=(), store="memory://", **{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("odd", [["--nonsense"], ["--engine", "abacus"], ["--max-running", "0"]])
def test_a_wrong_command_line_ends_with_2(
    odd: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_config([*ARGUMENTS, *odd])
    assert caught.value.code == 2
    assert "usage" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--grpc-port", "99999"),
        ("--http-port", "70000"),
        ("--http-port", "-1"),
        ("--grace-ms", "inf"),
        ("--grace-ms", "nan"),
        ("--store-timeout-ms", "nan"),
        ("--refresh-ms", "inf"),
        ("--max-deadline-ms", "nan"),
        ("--breaker-open-ms", "nan"),
    ],
)
def test_a_number_beyond_all_bounds_is_refused_by_the_name_of_its_setting(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        parse_config([*ARGUMENTS, option, value])
    assert caught.value.code == 2
    assert f"{option[2:].replace('-', '_')}: expected" in capsys.readouterr().err
