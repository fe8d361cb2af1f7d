"""A model of ours as its difference to the base model that it was trained from, and the merge of the two.

Training keeps the base's scales, so every weight of a matrix is an integer in both models, and the difference is a
small integer. Biases and norms are stored as they are. A merge adds integers and copies bytes: no floating-point
operation takes part, so the result has the same bytes on every machine. `training/export.py` writes the difference.

The file is xz. It begins with the length of a JSON list (4 bytes) and that list: name, `add` or `set`, and number of
values for each tensor. Then come the values of all tensors, int8 for `add` and float32 for `set`.
"""

from __future__ import annotations

import json
import lzma
import struct
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any, NamedTuple

from commonplace.errors import Corrupt

LARGEST = 64
"""The base's integers are from -64 to 64, so that two products fit 16 bits on processors without VNNI."""

_GRAPH, _INITIALIZER, _NAME = 7, 5, 8
_VALUES = (9, 4)
"""Fields of a tensor with its values as they are in memory: raw data, or packed floats."""


class Change(NamedTuple):
    """What happens to one tensor of the base."""

    name: str
    operation: str
    values: bytes


def packaged(name: str) -> bytes:
    """Read the difference that this package ships."""
    return resources.files(__package__).joinpath(name).read_bytes()


def pack(changes: list[Change]) -> bytes:
    """Make the file."""
    sizes = {"add": 1, "set": 4}
    listed = json.dumps(
        [[one.name, one.operation, len(one.values) // sizes[one.operation]] for one in changes]
    ).encode()
    whole = struct.pack("<I", len(listed)) + listed + b"".join(one.values for one in changes)
    # The values are bytes without structure: no literal context, and the longest matches are rare.
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 9 | lzma.PRESET_EXTREME, "lc": 0, "lp": 0, "pb": 0}]
    return lzma.compress(whole, check=lzma.CHECK_CRC64, filters=filters)


def unpack(packed: bytes) -> Iterator[Change]:
    """The changes of the file in order."""
    whole = lzma.decompress(packed)
    (length,) = struct.unpack_from("<I", whole)
    position = 4 + length
    for name, operation, count in json.loads(whole[4:position]):
        size = count * (1 if operation == "add" else 4)
        yield Change(name, operation, whole[position : position + size])
        position += size


def merge(base: bytes, packed: bytes) -> bytes:
    """The base's file with the changes. The result has the same length: only values are replaced."""
    import numpy as np

    merged = bytearray(base)
    places = tensors(base)
    for change in unpack(packed):
        start, end = places.get(change.name, (0, -1))
        if end - start != len(change.values):
            raise Corrupt(f"the difference does not fit this base model: tensor {change.name}")
        if change.operation == "set":
            merged[start:end] = change.values
            continue
        weights = np.frombuffer(merged, np.int8, end - start, start)
        added = weights.astype(np.int16) + np.frombuffer(change.values, np.int8)
        if int(np.abs(added).max()) > LARGEST:
            raise Corrupt(f"the difference does not fit this base model: tensor {change.name} leaves its range")
        weights[:] = added.astype(np.int8)
    return bytes(merged)


# An ONNX file is a protobuf message. Only the names of tensors and the places of their values are read here.


def tensors(model: bytes) -> Mapping[str, tuple[int, int]]:
    """Where the values of each initializer begin and end."""
    found: dict[str, tuple[int, int]] = {}
    view = memoryview(model)
    for field, start, end in _fields(view, 0, len(view)):
        if field != _GRAPH:
            continue
        for inner, first, last in _fields(view, start, end):
            if inner != _INITIALIZER:
                continue
            parts = {number: (begin, stop) for number, begin, stop in _fields(view, first, last)}
            values = next((parts[number] for number in _VALUES if number in parts), None)
            if _NAME in parts and values is not None:
                begin, stop = parts[_NAME]
                found[bytes(view[begin:stop]).decode()] = values
    return found


def _fields(view: memoryview[Any], position: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message with a length: number, and where the content begins and ends."""
    while position < end:
        key, position = _varint(view, position)
        kind = key & 7
        if kind == 0:
            _, position = _varint(view, position)
        elif kind == 2:
            length, position = _varint(view, position)
            yield key >> 3, position, position + length
            position += length
        elif kind in (1, 5):
            position += 8 if kind == 1 else 4
        else:
            raise Corrupt("the base model is not an ONNX file")


def _varint(view: memoryview[Any], position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = view[position]
        value |= (byte & 0x7F) << shift
        position += 1
        shift += 7
        if byte < 0x80:
            return value, position
