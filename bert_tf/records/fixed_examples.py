"""Many tf.train.Examples of one layout, written as one array of bytes.

Where every feature has a fixed number of values and every value a fixed number
of bytes, all records of a file have the same bytes but for the values. Small
numbers get the bytes of large ones: a varint may carry digits of zero before
its end (protobuf's encoding, "Base 128 varints"), and every reader of protobuf
takes them.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bert_tf.records.record_file import (
    FLOAT_LIST,
    INT64_LIST,
    example_header,
    feature_header,
)


@dataclasses.dataclass(frozen=True)
class FixedFeature:
    """A feature with the same number of values in every record.

    Attributes:
      name: of the feature.
      values: number of values, at least one.
      limit: whole numbers are below it; None for float32 values.
    """

    name: str
    values: int
    limit: int | None

    @property
    def value_bytes(self) -> int:
        """Bytes of each value."""
        if self.limit is None:
            return 4
        return max(-(-(self.limit - 1).bit_length() // 7), 1)

    def header(self) -> bytes:
        """All that stands before the values."""
        kind = FLOAT_LIST if self.limit is None else INT64_LIST
        return feature_header(self.name, kind, self.values * self.value_bytes)


class FixedExamples:
    """Encodes Examples of one layout.

    Args:
      features: in alphabetical order.
    """

    def __init__(self, features: Sequence[FixedFeature]) -> None:
        headers = [feature.header() for feature in features]
        size = sum(map(len, headers)) + sum(
            feature.values * feature.value_bytes for feature in features
        )
        headers[0] = example_header(size) + headers[0]
        self._features = tuple(features)
        fields: list[Any] = []
        for feature, header in zip(features, headers, strict=True):
            shape = (feature.values, feature.value_bytes)
            fields.append((f"before {feature.name}", f"V{len(header)}"))
            fields.append((feature.name, np.uint8, shape))
        self._template = np.zeros((), fields)
        for feature, header in zip(features, headers, strict=True):
            self._template[f"before {feature.name}"] = np.void(header)

    def encode(self, columns: Mapping[str, np.ndarray]) -> list[bytes]:
        """Encodes some records.

        Args:
          columns: by feature name, whole numbers below the feature's limit
            and not negative, or float32; [n, values].

        Returns:
          The bytes of each record.
        """
        rows = len(columns[self._features[0].name])
        block = np.full(rows, self._template)
        for feature in self._features:
            values, place = columns[feature.name], block[feature.name]
            if feature.limit is None:
                values = np.ascontiguousarray(values, "<f4")
                place[...] = values.view(np.uint8).reshape(place.shape)
                continue
            last = feature.value_bytes - 1
            for digit in range(last):
                place[..., digit] = (values >> 7 * digit).astype(np.uint8)
                place[..., digit] |= 0x80
            place[..., last] = values >> 7 * last if last else values
        size, encoded = block.itemsize, block.tobytes()
        return [
            encoded[start : start + size]
            for start in range(0, len(encoded), size)
        ]
