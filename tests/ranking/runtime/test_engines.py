"""Engines against the tiny model's definition, padding, and which engine is chosen."""

import logging
from pathlib import Path

import numpy as np
import pytest

from features.arrays import FloatArray
from ranking.bundle import Bundle
from ranking.manifest import TensorSpec
from ranking.runtime.engines.choose import EngineOptions, choose_engine
from ranking.runtime.engines.onnx import OnnxEngine
from ranking.runtime.engines.openvino import OpenVinoEngine, has_amx_bf16
from ranking.runtime.engines.protocol import Arrays, Engine, bucket_of, pad_rows
from ranking.runtime.errors import EngineError
from tests.ranking.runtime.fakes import FakeEngine
from tests.ranking.tiny_bundle import tiny_logits

BUCKETS = (2, 8, 50)
SPECS = (
    TensorSpec(name="user_codes", dtype="int64", shape=(1, 1)),
    TensorSpec(name="numeric", dtype="float32", shape=(None, 1)),
)


def inputs_of(bundle: Bundle, n: int) -> Arrays:
    golden = bundle.golden()[1].inputs
    rng = np.random.default_rng(n)
    user_side = {s.name for s in bundle.manifest.inputs if s.shape[0] == 1}
    rows = rng.integers(0, 3, n)
    return {name: a if name in user_side else a[rows] for name, a in golden.items()}


@pytest.mark.parametrize(("n", "bucket"), [(1, 2), (2, 2), (3, 8), (8, 8), (50, 50), (51, 51)])
def test_rows_are_padded_to_the_next_bucket(n: int, bucket: int) -> None:
    assert bucket_of(n, BUCKETS) == bucket
    numeric = np.arange(n, dtype=np.float64)[:, None]
    feed, rows = pad_rows(
        {"user_codes": np.array([[7]]), "numeric": numeric}, SPECS, row_buckets=BUCKETS
    )
    assert rows == n
    assert feed["user_codes"].shape == (1, 1)
    assert feed["numeric"].dtype == np.float32
    assert feed["numeric"][:, 0].tolist() == [*range(n), *([n - 1] * (bucket - n))]


@pytest.mark.parametrize("kind", [OnnxEngine, OpenVinoEngine])
@pytest.mark.parametrize("n", [1, 2, 7, 50])
def test_engines_give_what_the_model_is_defined_to_give(
    bundle: Bundle, kind: type[OnnxEngine] | type[OpenVinoEngine], n: int
) -> None:
    engine = kind(bundle.model_path, bundle.manifest)
    inputs = inputs_of(bundle, n)
    assert engine.run(inputs) == pytest.approx(tiny_logits(inputs), abs=1e-5)


def test_a_second_run_does_not_change_the_first_answer(bundle: Bundle) -> None:
    engine = OpenVinoEngine(bundle.model_path, bundle.manifest)
    first = engine.run(inputs_of(bundle, 5))
    kept = first.copy()
    engine.run(inputs_of(bundle, 6))
    assert (first == kept).all()


@pytest.mark.parametrize("kind", [OnnxEngine, OpenVinoEngine])
def test_a_truncated_model_is_an_engine_error(
    bundle: Bundle, tmp_path: Path, kind: type[OnnxEngine] | type[OpenVinoEngine]
) -> None:
    whole = bundle.model_path.read_bytes()
    (tmp_path / "model.onnx").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(EngineError, match=r"model\.onnx"):
        kind(tmp_path / "model.onnx", bundle.manifest)


@pytest.mark.parametrize(
    ("text", "expected"), [("flags : fpu amx_bf16\n", True), ("flags : fpu\n", False), ("", False)]
)
def test_amx_is_read_from_the_processors_flags(tmp_path: Path, text: str, expected: bool) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert has_amx_bf16(tmp_path / "cpuinfo") is expected


def test_without_amx_auto_is_onnx_runtime_and_no_fallback(bundle: Bundle) -> None:
    choice = choose_engine(bundle, EngineOptions(has_amx=False).openers())
    assert choice.engine.name == "onnxruntime-fp32"
    assert choice.fallback_reason is None


def test_openvino_serves_when_it_is_asked_for(bundle: Bundle) -> None:
    options = EngineOptions(engine="openvino", has_amx=False)
    assert choose_engine(bundle, options.openers()).engine.name == "openvino-fp32"


def coarse(bundle: Bundle) -> Engine:
    class Coarse(FakeEngine):
        name, precision = "coarse-bf16", "bf16"

        def run(self, inputs: Arrays) -> FloatArray:
            return tiny_logits(inputs) + np.float32(0.2)

    return Coarse()


def test_an_engine_outside_its_tolerance_falls_back_and_says_so_once(
    bundle: Bundle, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        choice = choose_engine(bundle, [coarse, *EngineOptions(has_amx=False).openers()])
    assert choice.engine.name == "onnxruntime-fp32"
    assert choice.fallback_reason is not None
    assert "coarse-bf16" in choice.fallback_reason
    assert len(caplog.records) == 1


def test_no_engine_within_tolerance_is_an_error(bundle: Bundle) -> None:
    with pytest.raises(EngineError, match="golden request 0"):
        choose_engine(bundle, [coarse])


def test_an_engine_that_gives_no_numbers_is_refused(bundle: Bundle) -> None:
    class Silent(FakeEngine):
        def run(self, inputs: Arrays) -> FloatArray:
            return np.full((len(inputs["item_codes"]), 2), np.nan, dtype=np.float32)

    with pytest.raises(EngineError, match="difference of nan"):
        choose_engine(bundle, [lambda _: Silent()])
