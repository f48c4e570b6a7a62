"""From values to codes and numbers: one object for training, worker and ranker.

Codes 0, 1 and 2 mean padding, null and unknown in every vocabulary, whether or not nulls occurred
when it was fitted; values start at 3. A fitted vocabulary is frozen: what it has not seen often
enough is unknown, for ever. A hashed one needs no fit and loses nothing but collisions.

It is saved as JSON, in readable form, with the hash that other artefacts carry (`encoder_id`).
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from features.arrays import FloatArray, IntArray
from features.errors import DataError, SchemaError
from features.files import write_whole
from features.numbers import encode_numbers
from features.schema import FeatureSpec, Schema, VocabularySpec

PAD, NULL, UNKNOWN, FIRST = 0, 1, 2, 3

_FORMAT = 1


@dataclass(frozen=True, kw_only=True)
class Vocabulary:
    """Codes of one kind of value.

    Attributes:
        spec: the schema's declaration.
        values: fitted values as text, most frequent first; empty when hashed.
    """

    spec: VocabularySpec
    values: tuple[str, ...]

    @property
    def size(self) -> int:
        """Number of codes, the reserved ones included."""
        hashed = self.spec.policy == "hashed"
        return FIRST + (self.spec.num_buckets if hashed else len(self.values))

    @functools.cached_property
    def _code_by_value(self) -> dict[str, int]:
        return {value: FIRST + place for place, value in enumerate(self.values)}

    def code(self, text: str) -> int:
        """The code of one value that is not null."""
        if self.spec.policy == "hashed":
            digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
            return FIRST + int.from_bytes(digest, "little") % self.spec.num_buckets
        return self._code_by_value.get(text, UNKNOWN)


def collision_frac(num_used: int, num_buckets: int) -> float:
    """Estimate the share of a hashed vocabulary's values that share their code with another.

    Of n values in B buckets, B (1 - (1 - 1/B)^n) buckets are used on average, and a value is alone
    in its own with probability (1 - 1/B)^(n - 1). The first gives n, the second the share.

    Args:
        num_used: codes that occurred, reserved ones not counted.
        num_buckets: of the vocabulary; if all are used, nearly every value shares one.
    """
    if num_used < 2:
        return 0.0
    if num_used >= num_buckets:
        return 1.0
    empty = math.log1p(-1 / num_buckets)
    num_values = math.log1p(-num_used / num_buckets) / empty
    return -math.expm1((num_values - 1) * empty)


def as_text(column: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Give values as the text that vocabularies hold; integers become exact decimals.

    Raises:
        DataError: values with no exact text, floating-point numbers above all.
    """
    kind = column.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return column
    if pa.types.is_dictionary(kind):
        return as_text(pc.cast(column, kind.value_type))
    if pa.types.is_null(kind) or pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return pc.cast(column, pa.string())
    raise DataError(f"categorical values: expected text, integers or booleans, got {kind}")


class Encoder:
    """The vocabularies and number transforms of one schema.

    Args:
        schema_id: of the schema it was fitted for.
        vocabularies: by name.
        fitted_until_ms: nothing from this moment on was looked at; a note, not part of the id.
    """

    def __init__(
        self,
        schema_id: str,
        vocabularies: Mapping[str, Vocabulary],
        *,
        fitted_until_ms: int | None = None,
    ) -> None:
        self.schema_id = schema_id
        self.fitted_until_ms = fitted_until_ms
        self._vocabularies = dict(vocabularies)

    @classmethod
    def fit(
        cls,
        schema: Schema,
        columns: Mapping[str, Iterable[pa.ChunkedArray]],
        *,
        until_ms: int | None = None,
    ) -> Encoder:
        """Count values and keep those that occur often enough.

        Args:
            schema: declares the vocabularies.
            columns: vocabulary name to every column that feeds it, training windows only.
            until_ms: end of the window that the columns are from.

        Raises:
            DataError: values with no exact text (floating-point numbers).
        """
        counts: dict[str, Counter[str]] = {}
        for name, parts in columns.items():
            counts[name] = Counter()
            for column in parts:
                text = column if _is_text_dictionary(column.type) else as_text(column)
                for entry in pc.value_counts(pc.drop_null(text)).to_pylist():
                    counts[name][entry["values"]] += entry["counts"]
        return cls.of_counts(schema, counts, until_ms=until_ms)

    @classmethod
    def of_counts(
        cls,
        schema: Schema,
        counts: Mapping[str, Mapping[str, int]],
        *,
        until_ms: int | None = None,
    ) -> Encoder:
        """Keep the values that occur often enough.

        Args:
            schema: declares the vocabularies.
            counts: vocabulary name to how often each value was met; the empty text is a null.
            until_ms: end of the window that they were counted in.
        """
        vocabularies = {}
        for spec in schema.vocabularies:
            values: tuple[str, ...] = ()
            if spec.policy == "fitted":
                met = counts.get(spec.name, {}).items()
                kept = [(v, num) for v, num in met if v != "" and num >= spec.min_count]
                kept.sort(key=lambda item: (-item[1], item[0]))
                values = tuple(value for value, _ in kept)
            vocabularies[spec.name] = Vocabulary(spec=spec, values=values)
        return cls(schema.schema_id, vocabularies, fitted_until_ms=until_ms)

    @functools.cached_property
    def encoder_id(self) -> str:
        """Sixteen hexadecimal digits of the SHA-256 of all that decides a code."""
        content = json.dumps(self._content(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(content.encode()).hexdigest()[:16]

    def size(self, vocabulary: str) -> int:
        """Number of codes of a vocabulary, the three reserved ones included."""
        return self._of(vocabulary).size

    def num_buckets(self, vocabulary: str) -> int:
        """Number of buckets of a hashed vocabulary, 0 of a fitted one."""
        return self._of(vocabulary).spec.num_buckets

    def codes(
        self, vocabulary: str, values: pa.Array | pa.ChunkedArray | Sequence[Any]
    ) -> IntArray:
        """Give the codes of values; null is NULL, what is not known is UNKNOWN.

        Shapes:
            values: (N,); returns (N,), int64.

        Raises:
            DataError: values with no exact text (floating-point numbers).
        """
        words = self._of(vocabulary)
        column = _as_column(values)
        if not len(column):
            return np.zeros(0, dtype=np.int64)
        text = as_text(column)
        distinct = pc.unique(text)
        table = np.array(
            [NULL if v is None or v == "" else words.code(v) for v in distinct.to_pylist()],
            dtype=np.int64,
        )
        places = pc.index_in(text, value_set=distinct)
        return table[np.asarray(places, dtype=np.int64)]

    def numeric(
        self, feature: FeatureSpec, values: pa.Array | pa.ChunkedArray | Sequence[Any]
    ) -> FloatArray:
        """Give a numeric feature's values, checked against its domain and transformed.

        Args:
            feature: with its domain, transform and default.
            values: numbers.

        Raises:
            BadRows: missing without a declared default, not finite, or outside a domain that
                stops.
            DataError: no numbers at all.
        """
        return encode_numbers(feature, _as_column(values)).values

    def save(self, path: Path) -> None:
        """Write the encoder as JSON, whole or not at all."""
        document = {**self._content(), "fitted_until_ms": self.fitted_until_ms}
        write_whole(path, json.dumps(document, indent=1).encode())

    @classmethod
    def load(cls, path: Path) -> Encoder:
        """Read an encoder that was saved.

        Raises:
            DataError: the file is missing, damaged, or of another format.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            if document["format"] != _FORMAT:
                raise DataError(f"{path}: format {document['format']}, expected {_FORMAT}")
            vocabularies = {
                entry["spec"]["name"]: Vocabulary(
                    spec=VocabularySpec(**entry["spec"]), values=tuple(entry["values"])
                )
                for entry in document["vocabularies"]
            }
            until_ms = document.get("fitted_until_ms")
            return cls(document["schema_id"], vocabularies, fitted_until_ms=until_ms)
        except DataError:
            raise
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path}: not an encoder: {error!r}") from error

    def _content(self) -> dict[str, Any]:
        return {
            "format": _FORMAT,
            "schema_id": self.schema_id,
            "vocabularies": [
                {"spec": dataclasses.asdict(words.spec), "values": list(words.values)}
                for _, words in sorted(self._vocabularies.items())
            ],
        }

    def _of(self, vocabulary: str) -> Vocabulary:
        if vocabulary not in self._vocabularies:
            known = sorted(self._vocabularies)
            raise SchemaError(f"vocabulary {vocabulary!r}: expected one of {known}")
        return self._vocabularies[vocabulary]


def _is_text_dictionary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_dictionary(kind) and pa.types.is_string(kind.value_type))


def _as_column(values: pa.Array | pa.ChunkedArray | Sequence[Any]) -> pa.Array | pa.ChunkedArray:
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values
    try:
        return pa.array(values)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise DataError(f"values of mixed or unsupported types: {error}") from error
