"""What an ONNX file says of itself, read without an ONNX library, which a ranker need not have.

Of the file's outermost message only the metadata is read: which vocabulary and which space of
vectors the weights were trained with. Weights are skipped, so the size of a model costs nothing.

Errors: BundleError, naming the file.
"""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from ranking.manifest import BundleError

# Numbers of onnx.proto: ModelProto.metadata_props, StringStringEntryProto.key and value.
_METADATA, _KEY, _VALUE = 14, 1, 2
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_MAX_VARINT_BYTES = 10


class _MalformedError(ValueError):
    """Bytes that are no protobuf message."""


def read_metadata(path: Path) -> dict[str, str]:
    """Give the metadata that was stamped into an ONNX file.

    Raises:
        BundleError: the file cannot be read, or is none.
    """
    try:
        with path.open("rb") as stream:
            size = os.fstat(stream.fileno()).st_size
            entries = [
                stream.read(length)
                for number, length in _fields(stream, size)
                if number == _METADATA
            ]
        return dict(_entry(data) for data in entries)
    except (OSError, _MalformedError, UnicodeDecodeError) as error:
        raise BundleError(f"{path}: expected an ONNX model: {error}") from error


def _entry(data: bytes) -> tuple[str, str]:
    stream, found = io.BytesIO(data), {_KEY: "", _VALUE: ""}
    for number, length in _fields(stream, len(data)):
        found[number] = stream.read(length).decode("utf-8")
    return found[_KEY], found[_VALUE]


def _fields(stream: BinaryIO, size: int) -> Iterator[tuple[int, int]]:
    """Give number and length of each field that has a length, the stream at its first byte."""
    while stream.tell() < size:
        tag = _varint(stream)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _varint(stream)
            continue
        length = _length(stream, kind)
        end = stream.tell() + length
        if end > size:
            raise _MalformedError(f"field {number} ends at byte {end} of {size}")
        if kind == _LENGTH:
            yield number, length
        stream.seek(end)


def _length(stream: BinaryIO, kind: int) -> int:
    if kind == _LENGTH:
        return _varint(stream)
    if kind not in (_FIXED32, _FIXED64):
        raise _MalformedError(f"no field is of kind {kind}")
    return 4 if kind == _FIXED32 else 8


def _varint(stream: BinaryIO) -> int:
    value = 0
    for place in range(_MAX_VARINT_BYTES):
        byte = stream.read(1)
        if not byte:
            raise _MalformedError("it ends inside a number")
        value |= (byte[0] & 0x7F) << (7 * place)
        if byte[0] < 0x80:
            return value
    raise _MalformedError(f"a number is longer than {_MAX_VARINT_BYTES} bytes")
