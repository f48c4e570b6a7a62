"""A child that does not start says why."""

from pathlib import Path

import pytest

from services.cli.processes import Child, ChildError


def test_a_module_that_ends_at_once_is_reported_with_the_end_of_its_log(tmp_path: Path) -> None:
    with pytest.raises(ChildError, match="No module named no_such_module"):
        Child("no_such_module", [], log=tmp_path / "log")


def test_a_child_is_ended_with_its_block(tmp_path: Path) -> None:
    module = tmp_path / "talker.py"
    module.write_text(
        "import json, signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('starting')\nprint(json.dumps({'grpc': 'here'}))\n"
        "time.sleep(60)\n"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(tmp_path))
        with Child("talker", [], log=tmp_path / "log") as child:
            assert child.announcement == {"grpc": "here"}
            assert child.is_running
            assert child.stop() == 7
    assert not child.is_running
