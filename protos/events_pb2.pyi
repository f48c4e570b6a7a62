from protos import ranking_pb2 as _ranking_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Id(_message.Message):
    __slots__ = ("integer", "text")
    INTEGER_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    integer: int
    text: str
    def __init__(self, integer: _Optional[int] = ..., text: _Optional[str] = ...) -> None: ...

class Engagement(_message.Message):
    __slots__ = ("source", "user", "event_at_ms", "arrival_at_ms", "columns")
    class ColumnsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: _ranking_pb2.FeatureValue
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[_ranking_pb2.FeatureValue, _Mapping]] = ...) -> None: ...
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    USER_FIELD_NUMBER: _ClassVar[int]
    EVENT_AT_MS_FIELD_NUMBER: _ClassVar[int]
    ARRIVAL_AT_MS_FIELD_NUMBER: _ClassVar[int]
    COLUMNS_FIELD_NUMBER: _ClassVar[int]
    source: str
    user: Id
    event_at_ms: int
    arrival_at_ms: int
    columns: _containers.MessageMap[str, _ranking_pb2.FeatureValue]
    def __init__(self, source: _Optional[str] = ..., user: _Optional[_Union[Id, _Mapping]] = ..., event_at_ms: _Optional[int] = ..., arrival_at_ms: _Optional[int] = ..., columns: _Optional[_Mapping[str, _ranking_pb2.FeatureValue]] = ...) -> None: ...

class ServedRequest(_message.Message):
    __slots__ = ("request", "response")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    RESPONSE_FIELD_NUMBER: _ClassVar[int]
    request: _ranking_pb2.RankRequest
    response: _ranking_pb2.RankResponse
    def __init__(self, request: _Optional[_Union[_ranking_pb2.RankRequest, _Mapping]] = ..., response: _Optional[_Union[_ranking_pb2.RankResponse, _Mapping]] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("topic", "partition", "offset", "reason", "payload")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PARTITION_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_FIELD_NUMBER: _ClassVar[int]
    topic: str
    partition: int
    offset: int
    reason: str
    payload: bytes
    def __init__(self, topic: _Optional[str] = ..., partition: _Optional[int] = ..., offset: _Optional[int] = ..., reason: _Optional[str] = ..., payload: _Optional[bytes] = ...) -> None: ...
