"""Counting baselines: boosted trees on popularity, placement and, as an opponent, history counts.

The first (``has_history=False``) knows how often an item was bought and where it was shown: what
any system has on its first day. The second adds six counts of the user's own purchases, of the
item and of its type and category, in total and over the last eight weeks. Trees on counts are a
strong opponent for any learned history, so both stand beside a model's figures.

Popularity counts everybody's purchases in earlier weeks, which run from the start of the FM
training window; a user's own count up to the impression's moment, as a model's history does. It
knows no torch and no model.

Errors: DataError for a window without both classes, and names the schema does not have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from features.arrays import FloatArray, IntArray
from features.dataset import LogDataset
from features.encoding import FIRST
from features.errors import DataError
from features.log import Impressions
from features.segments import first_not_before

WEEK_MS = 7 * 24 * 3_600_000
RECENT_MS = 8 * WEEK_MS
# The trees bin a categorical feature by value and hold at most this many.
MAX_CATEGORIES = 255
POPULARITY = "popularity"


@dataclass(frozen=True, kw_only=True)
class CountsConfig:
    """What the baseline counts, and how long it trains.

    Attributes:
        has_history: add the six counts of the user's own purchases.
        objective: label to predict.
        source: event source whose events are counted; it must have items.
        placement: context features that say where an item was shown.
        groups: item features whose purchases are counted beside the item's own.
        max_iterations: number of trees; twice as many were no better on the tuning weeks of the
            hard cut of Complete Journey.
        seed: of the trees.
    """

    has_history: bool
    objective: str = "purchase"
    source: str = "purchase"
    placement: tuple[str, ...] = ("surface", "display_location", "mailer_location")
    groups: tuple[str, ...] = ("product_type", "product_category")
    max_iterations: int = 100
    seed: int = 0


class CountsBaseline:
    """Trees over counts of one log, fitted on some of its impressions, scoring any others."""

    def __init__(self, dataset: LogDataset, config: CountsConfig) -> None:
        self._dataset = dataset
        self._config = config
        events = dataset.events[config.source]
        if events.item_keys is None:
            raise DataError(f"baseline source {config.source!r}: expected a source with items")
        self._known_users = np.unique(events.user_keys)
        self._known_items = np.unique(events.item_keys)
        # An event counts for moments after its time, from its arrival on.
        known_ms = np.maximum(events.at_ms, events.arrival_ms - 1)
        self._counters = {
            name: _Counter.build(group, known_ms)
            for name, group in self._groups(events.user_keys, events.item_keys).items()
        }
        self._trees: Any = HistGradientBoostingClassifier(
            max_iter=config.max_iterations,
            min_samples_leaf=50,
            early_stopping=False,
            categorical_features=list(range(len(config.placement))),
            random_state=config.seed,
        )

    def fit(self, impressions: Impressions) -> CountsBaseline:
        """Train on impressions, with their weights, and give itself back.

        Raises:
            DataError: the impressions are not of both classes.
        """
        labels = impressions.labels[self._config.objective]
        if len(np.unique(labels)) < 2:
            raise DataError(
                f"baseline on {self._config.objective!r}: expected rows of both classes, "
                f"got {len(labels)} rows of {np.unique(labels).tolist()}"
            )
        matrix, _ = self.features(impressions)
        self._trees.fit(matrix, labels, sample_weight=impressions.weights)
        return self

    def score(self, impressions: Impressions) -> FloatArray:
        """Give the probability of the objective for every impression, (N,)."""
        if not len(impressions):
            return np.zeros(0, dtype=np.float32)
        matrix, _ = self.features(impressions)
        return np.asarray(self._trees.predict_proba(matrix)[:, 1], dtype=np.float32)

    def features(self, impressions: Impressions) -> tuple[FloatArray, tuple[str, ...]]:
        """Give what the trees see, (N, F), and its column names.

        Raises:
            DataError: a placement feature has more codes than the trees can hold.
        """
        columns = {name: self._placement(impressions, name) for name in self._config.placement}
        groups = self._groups(impressions.user_keys, impressions.item_keys)
        at_ms = impressions.at_ms
        for name, group in groups.items():
            if name == POPULARITY:
                columns[name] = self._counters[name].before(group, self._week_start_ms(at_ms))
                continue
            columns[name] = self._counters[name].before(group, at_ms)
            old = self._counters[name].before(group, at_ms - RECENT_MS)
            columns[f"{name}_recent"] = columns[name] - old
        matrix = np.stack(list(columns.values()), axis=1).astype(np.float32)
        return matrix, tuple(columns)

    def _placement(self, impressions: Impressions, name: str) -> IntArray:
        codes = impressions.codes[name]
        if codes.max(initial=0) >= MAX_CATEGORIES:
            raise DataError(
                f"baseline placement {name!r}: expected codes below {MAX_CATEGORIES}, "
                f"got {int(codes.max())}"
            )
        return codes

    def _groups(self, user_keys: IntArray, item_keys: IntArray) -> dict[str, IntArray]:
        """Give what is counted as one number per row, -1 where there is nothing to count."""
        item = _place_in(self._known_items, item_keys)
        groups = {POPULARITY: item}
        if self._config.has_history:
            user = _place_in(self._known_users, user_keys)
            groups["user_item"] = _pair(user, item, len(self._known_items))
            items = self._dataset.items
            rows = items.rows(item_keys)
            for name in self._config.groups:
                column = items.column(name)
                code = np.where(column[rows] < FIRST, -1, column[rows])
                groups[f"user_{name}"] = _pair(user, code, int(column.max()) + 1)
        return groups

    def _week_start_ms(self, at_ms: IntArray) -> IntArray:
        first_ms = self._dataset.splits.fm_train[0]
        return at_ms - (at_ms - first_ms) % WEEK_MS


@dataclass(frozen=True, kw_only=True)
class _Counter:
    """Times of events by group, sorted; counts those of a group before a moment."""

    groups: IntArray
    starts: IntArray
    at_ms: IntArray

    @classmethod
    def build(cls, group: IntArray, at_ms: IntArray) -> _Counter:
        group, at_ms = group[group >= 0], at_ms[group >= 0]
        order = np.lexsort((at_ms, group))
        groups, starts = np.unique(group[order], return_index=True)
        return cls(groups=groups, starts=np.append(starts, len(order)), at_ms=at_ms[order])

    def before(self, group: IntArray, end_ms: IntArray) -> IntArray:
        """Count the events of each row's group strictly before the row's end."""
        place = _place_in(self.groups, group)
        low = np.where(place < 0, 0, self.starts[place])
        high = np.where(place < 0, 0, self.starts[place + 1])
        return first_not_before(self.at_ms, low, high, end_ms) - low


def _place_in(known: IntArray, keys: IntArray) -> IntArray:
    """Give each key's place among sorted known ones, -1 where it is not one of them."""
    if not len(known):
        return np.full(len(keys), -1, dtype=np.int64)
    place = np.minimum(np.searchsorted(known, keys), len(known) - 1)
    return np.where(known[place] == keys, place, -1)


def _pair(first: IntArray, second: IntArray, num_second: int) -> IntArray:
    return np.where((first < 0) | (second < 0), -1, first * num_second + second)
