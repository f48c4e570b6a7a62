"""OpenVINO on the CPU: bf16 where the processor has AMX for it, else fp32."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np

from features.arrays import FloatArray
from ranking.manifest import Manifest
from ranking.runtime.engines.protocol import Arrays, pad_rows
from ranking.runtime.errors import EngineError

_CPUINFO = Path("/proc/cpuinfo")


def has_amx_bf16(cpuinfo: Path = _CPUINFO) -> bool:
    """Tell whether this processor multiplies bf16 matrices in AMX tiles."""
    try:
        lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return False
    flags = next((line for line in lines if line.startswith("flags")), "")
    return "amx_bf16" in flags.split()


class OpenVinoEngine:
    """A model in OpenVINO, one inference request a thread.

    Args:
        path: the ONNX file.
        manifest: says inputs, outputs and row counts.
        precision: `fp32` or `bf16`; bf16 is a hint, which the golden requests check.
        num_threads: of one run.

    Raises:
        EngineError: OpenVINO is not installed, or cannot open the file.
    """

    def __init__(
        self, path: Path, manifest: Manifest, *, precision: str = "fp32", num_threads: int = 1
    ) -> None:
        try:
            import openvino
        except ImportError as error:
            raise EngineError("OpenVINO: expected it to be installed") from error
        self.precision = precision
        self.name = f"openvino-{precision}"
        self._manifest = manifest
        self._local = threading.local()
        settings = {
            "INFERENCE_PRECISION_HINT": "bf16" if precision == "bf16" else "f32",
            "INFERENCE_NUM_THREADS": num_threads,
            "NUM_STREAMS": 1,
        }
        try:
            core = openvino.Core()
            self._model = core.compile_model(core.read_model(str(path)), "CPU", settings)
        except RuntimeError as error:
            raise EngineError(f"{path}: OpenVINO cannot open it: {error}") from error

    def run(self, inputs: Arrays) -> FloatArray:
        """See `Engine.run`."""
        manifest = self._manifest
        feed, num_rows = pad_rows(inputs, manifest.inputs, row_buckets=manifest.row_buckets)
        try:
            if not hasattr(self._local, "request"):
                self._local.request = self._model.create_infer_request()
            found = self._local.request.infer(feed, share_inputs=True)
        except RuntimeError as error:
            raise EngineError(f"{self.name}, {num_rows} candidates: {error}") from error
        # The next run of this thread writes into the same memory.
        return np.array(found[manifest.outputs[0].name][:num_rows], dtype=np.float32)
