"""Why a request was not answered, or a bundle not served.

    GemcutterError
    |- InvalidRequest     (also ValueError)  the caller asked for what cannot be; names the field
    |- UnknownVertical    (also ValueError)  nothing of that name is served here
    |- DeadlineExceeded                      there is no time left to answer in
    |- CallerGone                            nobody waits for the answer any more
    |- Overloaded                            too many calls at once; come back later
    |- NotReady                              no model yet, or the process is stopping
    `- EngineError                           a model cannot be opened or computed

A missing user, a cold item or a store that does not answer is none of these: it is an answer with
flags.
"""

from __future__ import annotations

from features.errors import GemcutterError


class InvalidRequest(GemcutterError, ValueError):  # noqa: N818 (named for what happened)
    """The caller asked for what cannot be.

    Args:
        field: path of the field, such as `candidates.item_ids_str[3]`.
        expected: what may stand there.
        got: what does.
    """

    def __init__(self, field: str, *, expected: str, got: object) -> None:
        shown = got if isinstance(got, str) else repr(got)
        super().__init__(f"{field}: expected {expected}, got {shown[:200]}")
        self.field = field


class UnknownVertical(GemcutterError, ValueError):  # noqa: N818
    """Nothing of that name is served here."""


class DeadlineExceeded(GemcutterError):  # noqa: N818
    """There is no time left to answer in."""


class CallerGone(GemcutterError):  # noqa: N818
    """Nobody waits for the answer any more."""


class Overloaded(GemcutterError):  # noqa: N818
    """Too many calls at once; come back later."""


class NotReady(GemcutterError):  # noqa: N818
    """No model yet, or the process is stopping."""


class EngineError(GemcutterError):
    """A model cannot be opened or computed."""
