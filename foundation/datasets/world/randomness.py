"""Randomness without state: every draw has an address.

Draws of a piece of the log come from a Philox generator whose key is (seed, stream) and whose
counter starts at (tick, block). What must be found again from elsewhere (what a user did 200
events ago) is a hash of (seed, user, event number) instead.

Source: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"; the hash is the
finaliser of Steele et al. 2014, "Fast splittable pseudorandom number generators", figure 9.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]
Hashes = npt.NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_30, _27, _31 = np.uint64(30), np.uint64(27), np.uint64(31)


class Stream(IntEnum):
    """What a generator is for; each has draws of its own."""

    TOPICS = 1
    SURFACES = 2
    ADS = 3
    DAYS = 4
    USERS = 5
    ORGANIC = 6
    EXPOSURE = 7
    CLICKS = 8
    CONVERSIONS = 9


def generator(seed: int, stream: Stream, *, tick: int = 0, block: int = 0) -> np.random.Generator:
    """Give the generator of a stream at an address."""
    key = np.array([seed, stream], dtype=np.uint64)
    counter = np.array([0, 0, block, tick], dtype=np.uint64)
    return np.random.Generator(np.random.Philox(key=key, counter=counter))


def user_keys(seed: int, users: Numbers) -> Hashes:
    """Give the hash key of each user; :func:`hash_events` mixes event numbers into it."""
    offset = np.uint64(seed * 0x9E3779B97F4A7C15 % 2**64)
    return _finish(users.astype(np.uint64) * _SECOND + offset)


def hash_events(keys: Hashes, numbers: Numbers) -> Hashes:
    """Give 64 even bits for each event of a user.

    Shapes:
        keys, numbers: alike, or as broadcasting allows.
    """
    return _finish(keys + numbers.astype(np.uint64) * _GOLDEN)


def shorts(rng: np.random.Generator, num_rows: int, num_columns: int) -> npt.NDArray[np.uint16]:
    """Draw columns of even 16-bit numbers, (num_columns, num_rows): four cost one draw."""
    num_words = -(-num_rows * num_columns // 4)
    words = rng.integers(0, 2**64, num_words, dtype=np.uint64).astype("<u8", copy=False)
    return words.view("<u2")[: num_rows * num_columns].reshape(num_columns, num_rows)


def _finish(x: Hashes) -> Hashes:
    x = x ^ (x >> _30)
    x *= _FIRST
    x ^= x >> _27
    x *= _SECOND
    x ^= x >> _31
    return x
