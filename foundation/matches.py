"""What history says about a candidate in plain numbers: how often, how long ago, by which key.

Computed in NumPy over a far longer history than the model attends to: counting is cheap, and a
product bought twice a year is not among anybody's newest few hundred events.

Legend: B rows, R requests, E events of the requests end to end, J match keys.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from features.arrays import FloatArray, IntArray

_HOUR_MS = 3_600_000.0
_DAY_MS = 24 * _HOUR_MS

DoubleArray = npt.NDArray[np.float64]


def num_match_features(num_keys: int, half_lives_days: tuple[float, ...]) -> int:
    """Width of what :func:`match_features` gives."""
    return (num_keys + 1) * (len(half_lives_days) + 2)


def match_features(
    candidates_BJ: IntArray,
    request_B: IntArray,
    events_EJ: IntArray,
    ages_ms_E: IntArray,
    offsets_R: IntArray,
    *,
    half_lives_days: tuple[float, ...],
) -> FloatArray:
    """Give counts and recency of each candidate's matches in its request's history.

    For each key, and for a last one that every event matches: log(1 + sum of decay) for no decay
    and for each half-life, then log(1 + hours) since the newest match, 0 where there is none.

    Shapes:
        candidates_BJ: (B, J), int64. request_B: (B,), int64, the request of each row.
        events_EJ: (E, J), int64, oldest to newest inside a request. ages_ms_E: (E,), int64.
        offsets_R: (R + 1,), int64.
        returns: (B, (J + 1) * (number of half-lives + 2)), float32.

    Cost: O(J * sum over rows of their events).
    """
    rates = np.array([0.0, *(np.log(2) / (days * _DAY_MS) for days in half_lives_days)])
    decay_EK = np.exp(-ages_ms_E[:, None] * rates)
    recency_E = np.log1p(ages_ms_E / _HOUR_MS)
    num_rows, num_keys = candidates_BJ.shape
    out = np.zeros((num_rows, num_keys + 1, len(rates) + 1), dtype=np.float32)
    for row in range(num_rows):
        first, last = offsets_R[request_B[row]], offsets_R[request_B[row] + 1]
        if first == last:
            continue
        same_TJ = events_EJ[first:last] == candidates_BJ[row]
        for key in range(num_keys):
            hits = np.flatnonzero(same_TJ[:, key])
            if len(hits):
                out[row, key, :-1] = np.log1p(decay_EK[first + hits].sum(0))
                out[row, key, -1] = recency_E[first + hits[-1]]
    _fill_any_event(out, request_B, decay_EK, recency_E, offsets_R)
    return out.reshape(num_rows, (num_keys + 1) * (len(rates) + 1))


def _fill_any_event(
    out: FloatArray,
    request_B: IntArray,
    decay_EK: DoubleArray,
    recency_E: DoubleArray,
    offsets_R: IntArray,
) -> None:
    """The last key's numbers depend on the request alone."""
    for request in range(len(offsets_R) - 1):
        first, last = offsets_R[request], offsets_R[request + 1]
        if first < last:
            rows = request_B == request
            out[rows, -1, :-1] = np.log1p(decay_EK[first:last].sum(0))
            out[rows, -1, -1] = recency_E[last - 1]
