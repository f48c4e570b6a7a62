"""The planted memory: which earlier events matter, how much, and what seeing them is worth.

A user's organic events are numbered. Event m is an *occasion* of kind j, the number of times 2
divides m: every second event is of kind 0, every fourth of kind 1, and so on. Every event also
has a *style*, one of 16, drawn evenly. An impression after event N looks, for each kind j below
J = log2(horizon), at the last occasion of that kind; its lag is even over 1 to 2^(j+1) events.
With the styles e_j of those J events and c of the ad, read as four bits,

    g_j = (-1)^popcount(e_j AND c),     logit += sum_j lambda_j g_j.

c is never 0, so g_j is +1 or -1 with probability 1/2 exactly, and the g_j are independent of one
another and of everything else (taste, topic, policy). Hence the closed forms:

    lambda_j^2 = memory_logit_sd^2 2^(-rho j) / sum_i 2^(-rho i)
    V(L)       = sum_j lambda_j^2 min(1, L / 2^(j+1))

V(L) is the logit variance that the last L events explain; all of it from L = horizon on. Away from
the horizon, V(2L) - V(L) falls as L^(-rho): the length law. Where the log misreports a source's
style with probability 1 - q (an even one in its place), what it can explain is q^2 of that.

Events before the start of the log count as having happened: the world is older than its log.

Differs from the first sketch of this world: rho is the exponent of variance, not of the weights,
so that the length law has the exponent rho itself.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.config import NUM_STYLES, WorldConfig
from foundation.datasets.world.randomness import Hashes, Numbers, hash_events

_STYLE_SHIFT = np.uint64(60)
_PARITY = np.array([style.bit_count() & 1 for style in range(NUM_STYLES)], dtype=np.uint8)


def band_weights(config: WorldConfig) -> npt.NDArray[np.float64]:
    """Give lambda_j, (J,), in logits."""
    shares = 2.0 ** (-config.rho * np.arange(config.num_bands))
    weights: npt.NDArray[np.float64] = config.memory_logit_sd * np.sqrt(shares / shares.sum())
    return weights


def explained_variance(config: WorldConfig, num_visible: int) -> float:
    """Give V(L), in logit squared, of the last `num_visible` events: the closed form above."""
    reach = 2.0 ** (np.arange(config.num_bands) + 1)
    return float(np.sum(band_weights(config) ** 2 * np.minimum(1.0, num_visible / reach)))


def lags(config: WorldConfig, last: Numbers) -> npt.NDArray[np.int64]:
    """Give how many events ago the last occasion of each kind was, (N, J); 1 is the last event.

    Shapes:
        last: (N,), number of the last event before the impression.
    """
    half = np.int64(1) << np.arange(config.num_bands, dtype=np.int64)
    found: npt.NDArray[np.int64] = ((last[:, None] - half) & (2 * half - 1)) + 1
    return found


def occasions(config: WorldConfig, numbers: Numbers) -> npt.NDArray[np.uint8]:
    """Give the kind of each event, 0 to J; J is of no interest to anyone."""
    lowest = numbers & -numbers
    # log2 of a power of two is exact.
    kinds = np.log2(lowest.astype(np.float32)).astype(np.uint8)
    return np.minimum(kinds, np.uint8(config.num_bands))


def styles(hashes: Hashes) -> npt.NDArray[np.uint8]:
    """Give the style of each event from its hash."""
    return (hashes >> _STYLE_SHIFT).astype(np.uint8)


def remembered_styles(config: WorldConfig, keys: Hashes, last: Numbers) -> npt.NDArray[np.uint8]:
    """Give the styles e_j of the last occasions, (N, J).

    Shapes:
        keys: (N,), the users' hash keys.
        last: (N,), number of the last event before the impression.
    """
    numbers = last[:, None] + 1 - lags(config, last)
    return styles(hash_events(keys[:, None], numbers))


def band_signs(remembered: npt.NDArray[np.uint8], ad_styles: Numbers) -> npt.NDArray[np.uint16]:
    """Give, as bits, which g_j are -1: bit j is set.

    Shapes:
        remembered: (N, J).
        ad_styles: (N,), uint8, 1 to 15.
        returns: (N,).
    """
    odd = np.zeros((len(remembered), 16), dtype=np.uint8)
    odd[:, : remembered.shape[1]] = _PARITY[remembered & ad_styles[:, None]]
    packed = np.packbits(odd, axis=1, bitorder="little")
    return packed.view("<u2")[:, 0]


def memory_table(config: WorldConfig) -> npt.NDArray[np.float32]:
    """Give the memory's logit for every value of :func:`band_signs`, (2^J,)."""
    sums = contributions(config, np.arange(config.horizon)).sum(axis=1)
    found: npt.NDArray[np.float32] = sums.astype(np.float32)
    return found


def contributions(config: WorldConfig, signs: Numbers) -> npt.NDArray[np.float64]:
    """Give lambda_j g_j from the bits, (N, J), in logits."""
    odd = (signs.astype(np.int64)[:, None] >> np.arange(config.num_bands)) & 1
    found: npt.NDArray[np.float64] = band_weights(config) * (1.0 - 2.0 * odd)
    return found
