"""The one table from what went wrong to what gRPC and HTTP say.

InvalidRequest     INVALID_ARGUMENT     400      UnknownVertical    NOT_FOUND            404
Overloaded         RESOURCE_EXHAUSTED   429      NotReady           UNAVAILABLE          503
DeadlineExceeded   DEADLINE_EXCEEDED    504      CallerGone         CANCELLED            499
BodyTooLarge       RESOURCE_EXHAUSTED   413      anything else      INTERNAL             500
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from features.errors import GemcutterError
from ranking.runtime.errors import (
    CallerGone,
    DeadlineExceeded,
    InvalidRequest,
    NotReady,
    Overloaded,
    UnknownVertical,
)

RETRY_AFTER_S = 1

_log = logging.getLogger(__name__)


class BodyTooLarge(GemcutterError, ValueError):  # noqa: N818 (named for what happened)
    """A message has more bytes than the process takes."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What a caller is told.

    Attributes:
        code: name of a gRPC status.
        field: path of the request's field that is wrong, or empty.
    """

    code: str
    http_status: int
    message: str
    field: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is our own bug."""
        return self.http_status == _INTERNAL


_INTERNAL = 500
_KNOWN: dict[type[Exception], tuple[str, int]] = {
    InvalidRequest: ("INVALID_ARGUMENT", 400),
    UnknownVertical: ("NOT_FOUND", 404),
    BodyTooLarge: ("RESOURCE_EXHAUSTED", 413),
    Overloaded: ("RESOURCE_EXHAUSTED", 429),
    CallerGone: ("CANCELLED", 499),
    NotReady: ("UNAVAILABLE", 503),
    DeadlineExceeded: ("DEADLINE_EXCEEDED", 504),
}


def fault_of(error: Exception) -> Fault:
    """Give what to tell the caller; what nobody expected is logged and told without details."""
    known = _KNOWN.get(type(error))
    if known is None:
        _log.error("call failed", exc_info=error)
        return Fault(code="INTERNAL", http_status=_INTERNAL, message="internal error")
    code, status = known
    field = error.field if isinstance(error, InvalidRequest) else ""
    return Fault(code=code, http_status=status, message=str(error), field=field)
