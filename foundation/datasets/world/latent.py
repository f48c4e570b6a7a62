"""What is hidden: topics, surfaces, and each user's taste, intents, life and purse.

Topics are the leaves of a tree: the vector of a topic is sqrt(.6) of its department's and sqrt(.4)
of its own, entries N(0, 1/K); departments and leaves have Zipf weights, and the log-popularity of
each topic walks from day to day. A taste z_u has entries N(0, 1); for an ad with content a,

    affinity(u, s, a) = z_u W_s a,        about N(0, 1) over users.

W_0 is a random rotation. W_s = sqrt(r_s) W_0 + sqrt(1 - r_s) W_s' for the surfaces in between, W_s'
a rotation of its own made orthogonal to W_0, so the correlation of affinities on s and 0 is
sqrt(r_s). The last surface conflicts with the first: W_0 with the sign of a share f of taste's
dimensions turned, so their correlation is 1 - 2f. Conversions follow W_c, a surface of its own of
relatedness 1/2 ("an objective like any other").

Organic events follow W_0: 64 slots of topics a user, drawn from softmax(2 z W_0 topic + log
popularity), so what a user does reveals the taste that ads appeal to.

An intent is a topic that a user wants for some hours: it starts once in `intent_days`, at an even
moment, and lasts exponentially long, cut at the end of that time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from foundation.datasets.world.config import MAX_HORIZON, MS_PER_DAY, MS_PER_HOUR, WorldConfig
from foundation.datasets.world.randomness import (
    Hashes,
    Numbers,
    Stream,
    generator,
    hash_events,
    user_keys,
)

NUM_SLOTS = 64
NUM_STAGES = 6
_STAGE_DAYS = 180.0
_DEPARTMENT_SHARE = 0.6
_SLOT_SHARPNESS = 2.0
CONVERSION_RELATEDNESS = 0.5

Floats = npt.NDArray[np.float32]


class Topics:
    """The topic tree.

    Attributes:
        vectors: (T, K).
        department: (T,), of each topic.
        log_popularity: (T,), on the first day.
        trend: (days, T), what days add to it; also part of every click's logit.
    """

    def __init__(self, config: WorldConfig, is_shock: npt.NDArray[np.bool_]) -> None:
        rng = generator(config.seed, Stream.TOPICS)
        num, departments, dims = config.num_topics, config.num_departments, config.num_dims
        self.department = np.repeat(np.arange(departments), config.topics_per_department)
        upper = rng.standard_normal((departments, dims)) / np.sqrt(dims)
        own = rng.standard_normal((num, dims)) / np.sqrt(dims)
        share = _DEPARTMENT_SHARE
        mixed = np.sqrt(share) * upper[self.department] + np.sqrt(1 - share) * own
        self.vectors: Floats = mixed.astype(np.float32)
        leaf = np.tile(np.arange(config.topics_per_department), departments)
        branch = np.log1p(self.department) + np.log1p(leaf)
        self.log_popularity = -config.zipf_exponent * branch
        self.stage_logit: Floats = (0.2 * rng.standard_normal((NUM_STAGES, num))).astype(np.float32)
        self.trend: Floats = self._walk(config, is_shock)
        self._config = config

    def _walk(self, config: WorldConfig, is_shock: npt.NDArray[np.bool_]) -> Floats:
        walk = np.zeros(config.num_topics)
        rows = []
        for day, is_shocked in enumerate(is_shock):
            rng = generator(config.seed, Stream.DAYS, tick=day, block=1)
            walk = walk + config.trend_sd * rng.standard_normal(config.num_topics)
            favourite = rng.integers(0, config.num_departments)
            rows.append(walk + config.shock_logit * (self.department == favourite) * is_shocked)
        return np.array(rows, dtype=np.float32)

    def popular(self, day: int, num_entries: int = 1 << 12) -> npt.NDArray[np.int16]:
        """Give the inverse of a day's popularity: an even entry of it is a popular topic."""
        weights = np.exp(self.log_popularity + self.trend[day])
        edges = np.cumsum(weights / weights.sum())
        places = (np.arange(num_entries) + 0.5) / num_entries
        return np.minimum(np.searchsorted(edges, places), len(edges) - 1).astype(np.int16)


def surface_names(config: WorldConfig) -> tuple[str, ...]:
    """Give the surfaces' names, the first and the last in conflict."""
    known = ("feed", "story", "search", "partner")
    middle = [known[i] if i < 3 else f"place{i}" for i in range(1, config.num_surfaces - 1)]
    return ("feed", *middle, "partner")


def surface_relatedness(config: WorldConfig) -> npt.NDArray[np.float64]:
    """Give r_s of the surfaces but the last, (S - 1,): 1 for the first, then down evenly."""
    found: npt.NDArray[np.float64] = np.linspace(
        1.0, config.min_relatedness, config.num_surfaces - 1
    )
    return found


def surface_matrices(config: WorldConfig) -> tuple[Floats, Floats]:
    """Give W_s of every surface, (S, K, K), and W_c of conversions, (K, K)."""
    rng = generator(config.seed, Stream.SURFACES)
    dims = config.num_dims
    first = _rotation(rng, dims)
    matrices = [
        np.sqrt(r) * first + np.sqrt(1 - r) * _apart(_rotation(rng, dims), first)
        for r in surface_relatedness(config)
    ]
    signs = np.ones(dims)
    signs[: round(config.conflict_frac * dims)] = -1.0
    matrices.append(signs[:, None] * first)
    r = CONVERSION_RELATEDNESS
    other = _apart(_rotation(rng, dims), first)
    of_conversions = np.sqrt(r) * first + np.sqrt(1 - r) * other
    return np.array(matrices, dtype=np.float32), of_conversions.astype(np.float32)


def affinity_correlation(first: Numbers, second: Numbers) -> float:
    """Give the correlation of affinities of two matrices, over users and contents."""
    inner = float(np.sum(first.astype(np.float64) * second))
    return inner / float(np.linalg.norm(first) * np.linalg.norm(second))


def _rotation(rng: np.random.Generator, dims: int) -> npt.NDArray[np.float64]:
    q, r = np.linalg.qr(rng.standard_normal((dims, dims)))
    found: npt.NDArray[np.float64] = q * np.sign(np.diag(r))
    return found


def _apart(matrix: Numbers, first: Numbers) -> npt.NDArray[np.float64]:
    """Take away what a matrix has in common with W_0, and give it the size of a rotation."""
    dims = len(first)
    rest = matrix - np.sum(matrix * first) / dims * first
    found: npt.NDArray[np.float64] = rest * np.sqrt(dims) / np.linalg.norm(rest)
    return found


@dataclass(frozen=True, kw_only=True, eq=False)
class UserBlock:
    """The users of one block, U of them.

    Attributes:
        first: id of the first of them; ids of a block are in a row.
        keys: (U,), of the event hash.
        rate: (U,), events per day of mean activity.
        phase: (U,), place on the user's line at the first moment of the log.
        z: (U, K), taste.
        surface_tastes: (S, U, K), z W_s.
        conversion_tastes: (U, K), z W_c.
        slots: (U, 64), topics that organic events are drawn from.
        effect: (U,), logit of clicking on anything.
        budget: (U,), log price that suits.
        stage: (U,), place in life, 0 to 6, moving on with time.
        delay_factor: (U,), of conversions.
    """

    first: int
    keys: Hashes
    rate: npt.NDArray[np.float64]
    phase: npt.NDArray[np.float64]
    z: Floats
    surface_tastes: Floats
    conversion_tastes: Floats
    slots: npt.NDArray[np.int16]
    effect: Floats
    budget: Floats
    stage: Floats
    delay_factor: Floats

    def __len__(self) -> int:
        """Number of users."""
        return len(self.keys)

    def stages(self, config: WorldConfig, at_ms: int) -> npt.NDArray[np.int64]:
        """Give the stage of life of each user at a moment, (U,), 0 to 5."""
        days = (at_ms - config.start_ms) / MS_PER_DAY
        return (self.stage + days / _STAGE_DAYS).astype(np.int64) % NUM_STAGES


def draw_users(
    config: WorldConfig, block: int, topics: Topics, matrices: tuple[Floats, Floats]
) -> UserBlock:
    """Draw the users of a block; the last block's unused users are drawn and dropped."""
    size = config.users_per_block
    rng = generator(config.seed, Stream.USERS, block=block)
    first = block * size
    kept = slice(0, min(size, config.num_users - first))
    z = rng.standard_normal((size, config.num_dims), dtype=np.float32)[kept]
    sigma = config.activity_sigma
    drawn = rng.standard_normal((5, size))[:, kept]
    even = rng.random((2, size))[:, kept]
    by_surface, of_conversions = matrices
    slots = _draw_slots(topics, z @ by_surface[0], rng.random((size, NUM_SLOTS))[kept])
    return UserBlock(
        first=first,
        keys=user_keys(config.seed, np.arange(first, first + len(z))),
        rate=config.events_per_day * np.exp(sigma * np.clip(drawn[0], -4, 4) - sigma**2 / 2),
        phase=2.0 * MAX_HORIZON * (1 + even[0]),
        z=z,
        surface_tastes=np.einsum("uk,skl->sul", z, by_surface),
        conversion_tastes=z @ of_conversions,
        slots=slots,
        effect=(0.2 * drawn[1]).astype(np.float32),
        budget=(np.log(30.0) + 0.6 * drawn[2]).astype(np.float32),
        stage=(NUM_STAGES * even[1]).astype(np.float32),
        delay_factor=np.exp(0.3 * drawn[3] - 0.045).astype(np.float32),
    )


def _draw_slots(topics: Topics, tastes: Floats, even: Numbers) -> npt.NDArray[np.int16]:
    scores = _SLOT_SHARPNESS * (tastes @ topics.vectors.T) + topics.log_popularity
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    edges = np.cumsum(weights, axis=1)
    edges /= edges[:, -1:]
    # All users' distributions end to end on one line: user u's is between u and u + 1.
    base = np.arange(len(tastes))[:, None]
    found = np.searchsorted((edges + base).ravel(), (even + base).ravel())
    places = np.clip(found.reshape(even.shape) - base * edges.shape[1], 0, edges.shape[1] - 1)
    slots: npt.NDArray[np.int16] = places.astype(np.int16)
    return slots


@dataclass(frozen=True, kw_only=True, eq=False)
class Intents:
    """The intents of a block's users that may be present in a tick: F slots, 2 spells each.

    Shapes:
        start_ms, end_ms, topics: (U, F, 2).
    """

    start_ms: npt.NDArray[np.int64]
    end_ms: npt.NDArray[np.int64]
    topics: npt.NDArray[np.int16]

    def wanted(self, rows: Numbers, slots: Numbers | int, at_ms: Numbers) -> npt.NDArray[np.int16]:
        """Give the topic that each row's user wants in an intent slot, -1 for none, (N,)."""
        found: npt.NDArray[np.int16] = np.full(len(rows), -1, dtype=np.int16)
        for spell in (0, 1):
            start, end = self.start_ms[rows, slots, spell], self.end_ms[rows, slots, spell]
            is_on = (start <= at_ms) & (at_ms < end)
            np.copyto(found, self.topics[rows, slots, spell], where=is_on)
        return found


def draw_intents(config: WorldConfig, users: UserBlock, from_ms: int) -> Intents:
    """Give the intents that touch the time from a moment on, for a day."""
    period_ms = config.intent_days * MS_PER_DAY
    slots = np.arange(config.num_intents, dtype=np.int64)
    # Far from event numbers, so that the hashes have nothing in common.
    first = np.int64(1) << 40
    phases = _even(hash_events(users.keys[:, None], first + slots))
    since = (from_ms - config.start_ms) / period_ms + phases
    periods = np.floor(since).astype(np.int64)[:, :, None] + np.arange(2)
    numbers = first + (periods + 1) * 64 + 8 + slots[:, None]
    drawn = hash_events(users.keys[:, None, None], numbers)
    again = hash_events(drawn, np.ones(1))
    begin = (periods - phases[:, :, None]) * period_ms
    start = begin + _even(drawn) * period_ms
    length = -np.log1p(-_even(again)) * config.intent_hours * MS_PER_HOUR
    end = np.minimum(start + length, begin + period_ms)
    topics = (hash_events(again, np.full(1, 2)) % np.uint64(config.num_topics)).astype(np.int16)
    return Intents(
        start_ms=config.start_ms + start.astype(np.int64),
        end_ms=config.start_ms + end.astype(np.int64),
        topics=topics,
    )


def _even(hashes: Hashes) -> npt.NDArray[np.float64]:
    return (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
