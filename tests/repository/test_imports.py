"""The serving half loads no torch, in fact and not only by contract."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "torchrec", "fbgemm_gpu", "foundation", "precompute", "ranking.training", "kafka")


def loaded_after(statement: str) -> set[str]:
    code = f"import sys\n{statement}\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import ranking.runtime",
        "import ranking.runtime.pipeline",
        "import ranking.runtime.loader",
        "import ranking.bundle",
        "import services.ranker.main",
    ],
)
def test_importing_the_serving_side_loads_nothing_of_training(statement: str) -> None:
    loaded = loaded_after(statement)
    assert statement.split()[1] in loaded
    assert not [name for name in HEAVY if name in loaded]


@pytest.mark.parametrize(
    "package", ["features", "kernels", "foundation", "precompute", "loadtests"]
)
def test_importing_a_package_reads_no_environment_and_starts_no_thread(package: str) -> None:
    loaded = loaded_after(
        f"import threading, {package}\nassert threading.active_count() == 1, threading.enumerate()"
    )
    assert package in loaded
