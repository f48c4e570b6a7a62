"""What computes a model: one protocol, ONNX Runtime and OpenVINO behind it, and the choice."""

from ranking.runtime.engines.choose import Choice, EngineOptions, choose_engine
from ranking.runtime.engines.protocol import Arrays, Engine

__all__ = ["Arrays", "Choice", "Engine", "EngineOptions", "choose_engine"]
