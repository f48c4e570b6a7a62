"""JSON log lines on standard error."""

import json
import logging
import sys

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """One JSON object a record: time, level, event, and whatever was passed as extra."""

    def format(self, record: logging.LogRecord) -> str:
        """Give the line."""
        content: dict[str, object] = {
            "at_ms": int(record.created * 1e3),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        content |= {name: value for name, value in vars(record).items() if name not in _STANDARD}
        if record.exc_info:
            content["traceback"] = self.formatException(record.exc_info)
        return json.dumps(content, default=str)


def silence_torch_notice() -> None:
    """Keep torch 2.13 from telling every user that TorchRec asks it something by an old name."""
    logging.getLogger("torch.fx._symbolic_trace").setLevel(logging.ERROR)


def start_logging() -> None:
    """Send log records of this process to standard error as JSON lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    silence_torch_notice()
