"""A call as the pipeline takes it, and its raw features as a bundle's codes and numbers.

The checks here are the only ones: what passes them is valid for every later stage. The encoder is
the bundle's own, so a value has the code that it had in training.

Errors: InvalidRequest, with the path of the field.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from features.arrays import FloatArray, IntArray
from features.errors import DataError
from features.schema import FeatureSpec
from ranking.bundle import Bundle
from ranking.runtime.errors import InvalidRequest
from ranking.runtime.value import MAX_BID_MICROS

RawValue = str | int | float | None


@dataclass(frozen=True, kw_only=True, eq=False)
class RankCall:
    """One user, N candidates.

    Shapes:
        item_keys: (N,), int64, canonical keys of `item_ids`.
        bid_micros: (N,), int64; None lets everyone bid one unit.

    Attributes:
        at_ms: moment of the impression, Unix ms UTC.
        item_ids: as the caller wrote them.
        user_features: in place of what the store holds, by feature name.
        context: the same for every candidate, by feature name.
        columns: one value a candidate, by feature name.
        top_k: candidates of the answer; 0 is all.
        is_in_request_order: answer in the order asked instead of best first.
    """

    request_id: str
    user_key: int
    at_ms: int
    item_ids: Sequence[int] | Sequence[str]
    item_keys: IntArray
    bid_micros: IntArray | None = None
    user_features: Mapping[str, RawValue] = field(default_factory=dict)
    context: Mapping[str, RawValue] = field(default_factory=dict)
    columns: Mapping[str, Sequence[RawValue]] = field(default_factory=dict)
    top_k: int = 0
    is_in_request_order: bool = False


@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedContext:
    """The context of N candidates.

    Shapes:
        codes: (N, Fc), int64. numeric: by feature, (N,), float32.
    """

    codes: IntArray
    numeric: dict[str, FloatArray]


class RequestEncoder:
    """Checks calls and encodes them for one bundle."""

    def __init__(self, bundle: Bundle) -> None:
        spec, schema = bundle.manifest.assembly, bundle.schema
        self._manifest = bundle.manifest
        self._encoder = bundle.encoder
        numbers = [schema.feature(name) for name in spec.numeric_features]
        categories = [schema.feature(name) for name in spec.context_features]
        users = [schema.feature(name) for name in spec.user_features]
        self._context = {f.name: f for f in [*categories, *numbers] if f.of == "context"}
        self._user = {f.name: f for f in [*users, *numbers] if f.of == "user"}
        # A caller may send all that the schema knows; what this model does not take is left out.
        self._known_context = {f.name for f in schema.features_of("context")}
        self._known_user = {f.name for f in schema.features_of("user")}
        surfaces = schema.vertical(bundle.manifest.vertical).surfaces
        self._surfaces = surfaces if "surface" in self._context else ()

    def check(self, call: RankCall) -> None:
        """Refuse a call that cannot be answered.

        Raises:
            InvalidRequest: the first thing that is wrong, and where.
        """
        n = len(call.item_keys)
        limit = self._manifest.max_candidates
        if n > limit:
            raise InvalidRequest("candidates", expected=f"at most {limit}", got=n)
        if call.at_ms < 0:
            raise InvalidRequest("at_ms", expected="Unix milliseconds, 0 or more", got=call.at_ms)
        if call.bid_micros is not None:
            _check_bids(call.bid_micros, n)
        _check_names("user_features", call.user_features, self._known_user)
        _check_names("context", call.context, self._known_context)
        _check_names("candidates.columns", call.columns, self._known_context)
        for name, values in call.columns.items():
            if name in call.context:
                raise InvalidRequest(
                    f"context.{name}", expected="no such column of the candidates", got="both"
                )
            if len(values) != n:
                raise InvalidRequest(
                    f"candidates.columns.{name}", expected=f"{n} values", got=len(values)
                )

    def context(self, call: RankCall) -> EncodedContext:
        """Encode what surrounds the candidates; what was not sent is null.

        Raises:
            InvalidRequest: a value of another kind, outside its domain, or missing where the
                schema declares no default.
        """
        n = len(call.item_keys)
        codes, numeric = [], {}
        for name, spec in self._context.items():
            if name in call.columns:
                place, values = f"candidates.columns.{name}", call.columns[name]
            else:
                place, values = f"context.{name}", [call.context.get(name)]
            if name == "surface":
                self._check_surfaces(place, values)
            encoded = self._encode(spec, values, place)
            whole = encoded if len(encoded) == n else np.repeat(encoded, n)
            if spec.kind == "categorical":
                codes.append(whole)
            else:
                numeric[name] = whole.astype(np.float32)
        stacked = np.stack(codes, axis=1) if codes else np.zeros((n, 0))
        return EncodedContext(codes=stacked.astype(np.int64), numeric=numeric)

    def user(
        self, call: RankCall, profile: Mapping[str, RawValue]
    ) -> tuple[IntArray, dict[str, float]]:
        """Encode the user, the call's own values before those of the profile.

        A stored value that cannot be read is a null: the caller did not send it and cannot mend it.

        Raises:
            InvalidRequest: a value of the call is of another kind or outside its domain.
        """
        codes, numeric = [], {}
        for name, spec in self._user.items():
            if name in call.user_features:
                value = call.user_features[name]
                encoded = self._encode(spec, [value], f"user_features.{name}")[0]
            else:
                encoded = self._stored(spec, profile.get(name))
            if spec.kind == "categorical":
                codes.append(int(encoded))
            else:
                numeric[name] = float(encoded)
        return np.array(codes, dtype=np.int64), numeric

    def needs_profile(self, call: RankCall) -> bool:
        """Tell whether the call leaves user features for the store to say."""
        return not self._user.keys() <= call.user_features.keys()

    def _stored(self, spec: FeatureSpec, value: RawValue) -> np.generic:
        try:
            found: np.generic = self._encode(spec, [value], spec.name)[0]
        except InvalidRequest:
            is_mute = spec.kind == "numeric" and spec.default is None
            found = np.float32(0) if is_mute else self._encode(spec, [None], spec.name)[0]
        return found

    def _encode(
        self, spec: FeatureSpec, values: Sequence[RawValue], place: str
    ) -> IntArray | FloatArray:
        wanted: tuple[type, ...] = (str, int) if spec.kind == "categorical" else (int, float)
        kinds = set(map(type, values)) - {type(None)}
        if not kinds <= set(wanted):
            expected = "text or integers" if spec.kind == "categorical" else "numbers"
            index, odd = next(
                (i, v) for i, v in enumerate(values) if type(v) not in (*wanted, type(None))
            )
            raise InvalidRequest(f"{place}[{index}]", expected=expected, got=odd)
        try:
            if spec.kind == "numeric":
                return self._encoder.numeric(spec, pa.array(values, pa.float64()))
            texts = [str(v) if type(v) is int else v for v in values] if int in kinds else values
            return self._encoder.codes(spec.vocabulary or "", pa.array(texts, pa.string()))
        except (DataError, pa.ArrowInvalid, OverflowError, UnicodeError) as error:
            raise InvalidRequest(place, expected="values of its domain", got=str(error)) from error

    def _check_surfaces(self, place: str, values: Sequence[RawValue]) -> None:
        for value in values:
            if value is not None and value != "" and value not in self._surfaces:
                raise InvalidRequest(place, expected=f"one of {list(self._surfaces)}", got=value)


def _check_bids(bids: IntArray, n: int) -> None:
    if len(bids) != n:
        raise InvalidRequest("candidates.bid_micros", expected=f"{n} bids", got=len(bids))
    outside = np.flatnonzero((bids < 0) | (bids > MAX_BID_MICROS))
    if len(outside):
        place = int(outside[0])
        raise InvalidRequest(
            f"candidates.bid_micros[{place}]",
            expected=f"0 to {MAX_BID_MICROS}",
            got=int(bids[place]),
        )


def _check_names(place: str, given: Mapping[str, object], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise InvalidRequest(
                f"{place}.{name}", expected=f"one of {sorted(known)}", got="an unknown feature"
            )
