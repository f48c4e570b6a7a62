"""Which engine serves a bundle, decided by the bundle's golden requests on this machine.

`auto` takes OpenVINO in bf16 where the processor has AMX and the golden requests stay within the
manifest's bf16 tolerance, else ONNX Runtime in fp32. An engine that was wanted and failed is a
fallback: said once in the log, counted by the caller, and flagged in every answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ranking.bundle import Bundle, GoldenCase
from ranking.calibration import calibrate
from ranking.manifest import Manifest
from ranking.runtime.engines.onnx import OnnxEngine
from ranking.runtime.engines.openvino import OpenVinoEngine, has_amx_bf16
from ranking.runtime.engines.protocol import Engine
from ranking.runtime.errors import EngineError

EngineName = Literal["auto", "onnxruntime", "openvino"]
EngineOpener = Callable[[Bundle], Engine]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class EngineOptions:
    """How to choose.

    Attributes:
        engine: `auto`, or the one wanted.
        num_threads: of one run.
        has_amx: whether the processor has AMX for bf16.
    """

    engine: EngineName = "auto"
    num_threads: int = 1
    has_amx: bool | None = None

    def openers(self) -> list[EngineOpener]:
        """Give what to try, best first."""
        amx = has_amx_bf16() if self.has_amx is None else self.has_amx
        precision = "bf16" if amx else "fp32"
        threads = self.num_threads

        def onnx(bundle: Bundle) -> Engine:
            return OnnxEngine(bundle.model_path, bundle.manifest, num_threads=threads)

        def openvino(bundle: Bundle) -> Engine:
            return OpenVinoEngine(
                bundle.model_path, bundle.manifest, precision=precision, num_threads=threads
            )

        wants_openvino = self.engine == "openvino" or (self.engine == "auto" and amx)
        return [openvino, onnx] if wants_openvino else [onnx]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The engine that serves, and why it is not the one wanted, if it is not."""

    engine: Engine
    fallback_reason: str | None = None


def choose_engine(bundle: Bundle, openers: Sequence[EngineOpener]) -> Choice:
    """Open the first engine that gives what the golden requests expect.

    Raises:
        EngineError: none does; the last one's reason.
        BundleError: the golden requests are damaged.
    """
    golden = bundle.golden()
    reason: str | None = None
    for place, opener in enumerate(openers):
        try:
            engine = opener(bundle)
            warm_up(engine, golden, bundle.manifest)
            check_golden(engine, golden, bundle)
        except EngineError as error:
            reason = str(error)
            if place == len(openers) - 1:
                raise
            _log.warning("engine fallback", extra={"reason": reason})
            continue
        return Choice(engine=engine, fallback_reason=reason)
    raise EngineError("engines: expected at least one to try")


def warm_up(engine: Engine, golden: Sequence[GoldenCase], manifest: Manifest) -> None:
    """Run every row count once, so that no request pays for the first time.

    Raises:
        EngineError: a row count fails.
    """
    if not golden:
        raise EngineError("golden requests: expected at least one, got none")
    first = golden[0].inputs
    for bucket in manifest.row_buckets:
        rows = np.zeros(bucket, dtype=np.int64)
        inputs = {
            spec.name: first[spec.name][rows] if spec.shape[0] is None else first[spec.name]
            for spec in manifest.inputs
        }
        logits = engine.run(inputs)
        if len(logits) != bucket:
            raise EngineError(f"{engine.name}: expected {bucket} rows, got {len(logits)}")


def check_golden(engine: Engine, golden: Sequence[GoldenCase], bundle: Bundle) -> None:
    """Compare an engine's probabilities with the expected ones.

    Raises:
        EngineError: one differs by more than the tolerance of the engine's precision, or is no
            number.
    """
    manifest = bundle.manifest
    tolerance = manifest.tolerance.get(engine.precision)
    if tolerance is None:
        raise EngineError(
            f"{engine.name}: expected a tolerance for {engine.precision} in the manifest, "
            f"got {sorted(manifest.tolerance)}"
        )
    for place, case in enumerate(golden):
        p = calibrate(
            engine.run(case.inputs),
            manifest.objectives,
            manifest.calibration,
            negative_keep_frac=manifest.negative_keep_frac,
        )
        if p.shape != case.p.shape:
            raise EngineError(f"{engine.name}, golden request {place}: got shape {p.shape}")
        worst = float(np.abs(p - case.p).max(initial=0.0))
        if not worst <= tolerance:
            raise EngineError(
                f"{engine.name}, golden request {place}: expected probabilities within "
                f"{tolerance:g}, got a difference of {worst:.3g}"
            )
