"""ONNX Runtime on the CPU, in fp32."""

from __future__ import annotations

from pathlib import Path

import onnxruntime as ort

from features.arrays import FloatArray
from ranking.manifest import Manifest
from ranking.runtime.engines.protocol import Arrays, pad_rows
from ranking.runtime.errors import EngineError

# The binding's exceptions share no base below Exception.
_STATE = ort.capi.onnxruntime_pybind11_state
FAULTS = (
    RuntimeError,
    ValueError,
    _STATE.Fail,
    _STATE.InvalidArgument,
    _STATE.InvalidGraph,
    _STATE.InvalidProtobuf,
    _STATE.NoSuchFile,
    _STATE.NotImplemented,
    _STATE.RuntimeException,
)


class OnnxEngine:
    """A model in ONNX Runtime.

    Args:
        path: the ONNX file.
        manifest: says inputs, outputs and row counts.
        num_threads: of one run; 1 lets many calls run beside each other.

    Raises:
        EngineError: the file cannot be opened.
    """

    name = "onnxruntime-fp32"
    precision = "fp32"

    def __init__(self, path: Path, manifest: Manifest, *, num_threads: int = 1) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = num_threads
        options.inter_op_num_threads = 1
        # A spinning thread takes the core that the next call needs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._manifest = manifest
        self._outputs = [spec.name for spec in manifest.outputs]
        try:
            self._session = ort.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except FAULTS as error:
            raise EngineError(f"{path}: ONNX Runtime cannot open it: {error}") from error

    def run(self, inputs: Arrays) -> FloatArray:
        """See `Engine.run`."""
        manifest = self._manifest
        feed, num_rows = pad_rows(inputs, manifest.inputs, row_buckets=manifest.row_buckets)
        try:
            logits: FloatArray = self._session.run(self._outputs, feed)[0]
        except FAULTS as error:
            raise EngineError(f"{self.name}, {num_rows} candidates: {error}") from error
        return logits[:num_rows]
