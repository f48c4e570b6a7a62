from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LookupTier(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LOOKUP_TIER_UNSPECIFIED: _ClassVar[LookupTier]
    LOOKUP_TIER_EXACT_PAIR: _ClassVar[LookupTier]
    LOOKUP_TIER_SAME_USER_SIMILAR_ITEM: _ClassVar[LookupTier]
    LOOKUP_TIER_SIMILAR_USER_SAME_ITEM: _ClassVar[LookupTier]
    LOOKUP_TIER_USER_AGGREGATE: _ClassVar[LookupTier]
    LOOKUP_TIER_ITEM_AGGREGATE: _ClassVar[LookupTier]
    LOOKUP_TIER_DEFAULT: _ClassVar[LookupTier]

class DegradedReason(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DEGRADED_REASON_UNSPECIFIED: _ClassVar[DegradedReason]
    DEGRADED_REASON_STORE_UNAVAILABLE: _ClassVar[DegradedReason]
    DEGRADED_REASON_USER_MEMORY_MISSING: _ClassVar[DegradedReason]
    DEGRADED_REASON_USER_MEMORY_STALE: _ClassVar[DegradedReason]
    DEGRADED_REASON_USER_MEMORY_REFUSED: _ClassVar[DegradedReason]
    DEGRADED_REASON_USER_FEATURES_MISSING: _ClassVar[DegradedReason]
    DEGRADED_REASON_ENGINE_FALLBACK: _ClassVar[DegradedReason]
    DEGRADED_REASON_SCORE_FALLBACK: _ClassVar[DegradedReason]
LOOKUP_TIER_UNSPECIFIED: LookupTier
LOOKUP_TIER_EXACT_PAIR: LookupTier
LOOKUP_TIER_SAME_USER_SIMILAR_ITEM: LookupTier
LOOKUP_TIER_SIMILAR_USER_SAME_ITEM: LookupTier
LOOKUP_TIER_USER_AGGREGATE: LookupTier
LOOKUP_TIER_ITEM_AGGREGATE: LookupTier
LOOKUP_TIER_DEFAULT: LookupTier
DEGRADED_REASON_UNSPECIFIED: DegradedReason
DEGRADED_REASON_STORE_UNAVAILABLE: DegradedReason
DEGRADED_REASON_USER_MEMORY_MISSING: DegradedReason
DEGRADED_REASON_USER_MEMORY_STALE: DegradedReason
DEGRADED_REASON_USER_MEMORY_REFUSED: DegradedReason
DEGRADED_REASON_USER_FEATURES_MISSING: DegradedReason
DEGRADED_REASON_ENGINE_FALLBACK: DegradedReason
DEGRADED_REASON_SCORE_FALLBACK: DegradedReason

class FeatureValue(_message.Message):
    __slots__ = ("text", "integer", "number")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    text: str
    integer: int
    number: float
    def __init__(self, text: _Optional[str] = ..., integer: _Optional[int] = ..., number: _Optional[float] = ...) -> None: ...

class FeatureColumn(_message.Message):
    __slots__ = ("name", "texts", "integers", "numbers")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXTS_FIELD_NUMBER: _ClassVar[int]
    INTEGERS_FIELD_NUMBER: _ClassVar[int]
    NUMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    texts: _containers.RepeatedScalarFieldContainer[str]
    integers: _containers.RepeatedScalarFieldContainer[int]
    numbers: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, name: _Optional[str] = ..., texts: _Optional[_Iterable[str]] = ..., integers: _Optional[_Iterable[int]] = ..., numbers: _Optional[_Iterable[float]] = ...) -> None: ...

class Candidates(_message.Message):
    __slots__ = ("item_ids_int", "item_ids_str", "item_ids_le", "bid_micros", "bid_micros_le", "columns")
    ITEM_IDS_INT_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_STR_FIELD_NUMBER: _ClassVar[int]
    ITEM_IDS_LE_FIELD_NUMBER: _ClassVar[int]
    BID_MICROS_FIELD_NUMBER: _ClassVar[int]
    BID_MICROS_LE_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    item_ids_int: _containers.RepeatedScalarFieldContainer[int]
    item_ids_str: _containers.RepeatedScalarFieldContainer[str]
    item_ids_le: bytes
    bid_micros: _containers.RepeatedScalarFieldContainer[int]
    bid_micros_le: bytes
    columns: _containers.RepeatedCompositeFieldContainer[FeatureColumn]
    def __init__(self, item_ids_int: _Optional[_Iterable[int]] = ..., item_ids_str: _Optional[_Iterable[str]] = ..., item_ids_le: _Optional[bytes] = ..., bid_micros: _Optional[_Iterable[int]] = ..., bid_micros_le: _Optional[bytes] = ..., columns: _Optional[_Iterable[_Union[FeatureColumn, _Mapping]]] = ...) -> None: ...

class RankRequest(_message.Message):
    __slots__ = ("request_id", "vertical", "user_id_int", "user_id_str", "at_ms", "user_features", "context", "candidates", "top_k", "by_request_order")
    class UserFeaturesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[FeatureValue, _Mapping]] = ...) -> None: ...
    class ContextEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[FeatureValue, _Mapping]] = ...) -> None: ...
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    VERTICAL_FIELD_NUMBER: _ClassVar[int]
    USER_ID_INT_FIELD_NUMBER: _ClassVar[int]
    USER_ID_STR_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    USER_FEATURES_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_FIELD_NUMBER: _ClassVar[int]
    CANDIDATES_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    BY_REQUEST_ORDER_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    vertical: str
    user_id_int: int
    user_id_str: str
    at_ms: int
    user_features: _containers.MessageMap[str, FeatureValue]
    context: _containers.MessageMap[str, FeatureValue]
    candidates: Candidates
    top_k: int
    by_request_order: bool
    def __init__(self, request_id: _Optional[str] = ..., vertical: _Optional[str] = ..., user_id_int: _Optional[int] = ..., user_id_str: _Optional[str] = ..., at_ms: _Optional[int] = ..., user_features: _Optional[_Mapping[str, FeatureValue]] = ..., context: _Optional[_Mapping[str, FeatureValue]] = ..., candidates: _Optional[_Union[Candidates, _Mapping]] = ..., top_k: _Optional[int] = ..., by_request_order: _Optional[bool] = ...) -> None: ...

class RankedCandidate(_message.Message):
    __slots__ = ("item_id_int", "item_id_str", "index", "rank", "score", "ecpm_micros", "p", "tier", "pair_age_ms", "similarity", "is_stale", "is_cold_item", "is_fallback")
    class PEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ITEM_ID_INT_FIELD_NUMBER: _ClassVar[int]
    ITEM_ID_STR_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    ECPM_MICROS_FIELD_NUMBER: _ClassVar[int]
    P_FIELD_NUMBER: _ClassVar[int]
    TIER_FIELD_NUMBER: _ClassVar[int]
    PAIR_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SIMILARITY_FIELD_NUMBER: _ClassVar[int]
    IS_STALE_FIELD_NUMBER: _ClassVar[int]
    IS_COLD_ITEM_FIELD_NUMBER: _ClassVar[int]
    IS_FALLBACK_FIELD_NUMBER: _ClassVar[int]
    item_id_int: int
    item_id_str: str
    index: int
    rank: int
    score: float
    ecpm_micros: int
    p: _containers.ScalarMap[str, float]
    tier: LookupTier
    pair_age_ms: int
    similarity: float
    is_stale: bool
    is_cold_item: bool
    is_fallback: bool
    def __init__(self, item_id_int: _Optional[int] = ..., item_id_str: _Optional[str] = ..., index: _Optional[int] = ..., rank: _Optional[int] = ..., score: _Optional[float] = ..., ecpm_micros: _Optional[int] = ..., p: _Optional[_Mapping[str, float]] = ..., tier: _Optional[_Union[LookupTier, str]] = ..., pair_age_ms: _Optional[int] = ..., similarity: _Optional[float] = ..., is_stale: _Optional[bool] = ..., is_cold_item: _Optional[bool] = ..., is_fallback: _Optional[bool] = ...) -> None: ...

class StageTimes(_message.Message):
    __slots__ = ("validate_us", "lookup_us", "assemble_us", "engine_us", "rank_us", "total_us")
    VALIDATE_US_FIELD_NUMBER: _ClassVar[int]
    LOOKUP_US_FIELD_NUMBER: _ClassVar[int]
    ASSEMBLE_US_FIELD_NUMBER: _ClassVar[int]
    ENGINE_US_FIELD_NUMBER: _ClassVar[int]
    RANK_US_FIELD_NUMBER: _ClassVar[int]
    TOTAL_US_FIELD_NUMBER: _ClassVar[int]
    validate_us: int
    lookup_us: int
    assemble_us: int
    engine_us: int
    rank_us: int
    total_us: int
    def __init__(self, validate_us: _Optional[int] = ..., lookup_us: _Optional[int] = ..., assemble_us: _Optional[int] = ..., engine_us: _Optional[int] = ..., rank_us: _Optional[int] = ..., total_us: _Optional[int] = ...) -> None: ...

class RankResponse(_message.Message):
    __slots__ = ("request_id", "ranked", "degraded", "vertical", "bundle_id", "space_id", "schema_id", "engine", "stage_times", "num_fallback")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    RANKED_FIELD_NUMBER: _ClassVar[int]
    DEGRADED_FIELD_NUMBER: _ClassVar[int]
    VERTICAL_FIELD_NUMBER: _ClassVar[int]
    BUNDLE_ID_FIELD_NUMBER: _ClassVar[int]
    SPACE_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    STAGE_TIMES_FIELD_NUMBER: _ClassVar[int]
    NUM_FALLBACK_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    ranked: _containers.RepeatedCompositeFieldContainer[RankedCandidate]
    degraded: _containers.RepeatedScalarFieldContainer[DegradedReason]
    vertical: str
    bundle_id: str
    space_id: str
    schema_id: str
    engine: str
    stage_times: StageTimes
    num_fallback: int
    def __init__(self, request_id: _Optional[str] = ..., ranked: _Optional[_Iterable[_Union[RankedCandidate, _Mapping]]] = ..., degraded: _Optional[_Iterable[_Union[DegradedReason, str]]] = ..., vertical: _Optional[str] = ..., bundle_id: _Optional[str] = ..., space_id: _Optional[str] = ..., schema_id: _Optional[str] = ..., engine: _Optional[str] = ..., stage_times: _Optional[_Union[StageTimes, _Mapping]] = ..., num_fallback: _Optional[int] = ...) -> None: ...
