"""The encoder in PyTorch: read from the base model's int8 file, and kept on the grid of that file.

The file holds each matrix as integers from -64 to 64 and one scale for each column. A trained matrix uses the same
scales, so the difference to the base is a matrix of small integers, and the package ships only those. During training
the forward pass uses the rounded weights, and the gradient passes to the unrounded ones as if there were no rounding.
These begin at a random place within their step: from the middle, no small change would ever reach the next step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

WIDTH, HEADS, LAYERS = 384, 12, 12
LARGEST = 64
EPSILON = 1e-12
CLS, SEP = 101, 102
MATRICES = ("query", "key", "value", "output", "inner", "outer")
VECTORS = ("query.bias", "key.bias", "value.bias", "output.bias", "inner.bias", "outer.bias")
NORMS = ("norm1.weight", "norm1.bias", "norm2.weight", "norm2.bias")
_IN_FILE = {
    "query": "attention.self.query",
    "key": "attention.self.key",
    "value": "attention.self.value",
    "output": "attention.output.dense",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "norm1": "attention.output.LayerNorm",
    "norm2": "output.LayerNorm",
}

State = dict[str, Tensor]


@dataclass(frozen=True)
class Base:
    """The base model: float tensors by name, and for each matrix its integers and the scales of its columns."""

    tensors: State
    integers: State
    scales: State
    file_names: dict[str, str]
    """The name in the file of each trained tensor; for a matrix, without its ending."""


def read_base(path: Path) -> Base:
    """Read snowflake-arctic-embed-s as `commonplace model pull` installs it."""
    import onnx
    from onnx import numpy_helper

    arrays = {one.name: numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    tensors: State = {}
    integers: State = {}
    scales: State = {}
    names: dict[str, str] = {}

    def take(name: str, in_file: str) -> None:
        tensors[name] = torch.from_numpy(arrays[in_file].astype(np.float32))
        names[name] = in_file

    for name in ("word", "position", "token_type"):
        stem = f"embeddings.{name}_embeddings.weight"
        whole = arrays[f"{stem}_quantized"].astype(np.float32) - arrays[f"{stem}_zero_point"].astype(np.float32)
        tensors[name] = torch.from_numpy(whole * arrays[f"{stem}_scale"])
    take("norm.weight", "embeddings.LayerNorm.weight")
    take("norm.bias", "embeddings.LayerNorm.bias")
    numbered = sorted({int(name.split("_")[1]) for name in arrays if name.startswith("onnx::MatMul")})
    for layer in range(LAYERS):
        for place, matrix in enumerate(MATRICES):
            name = f"{layer}.{matrix}"
            stem = f"onnx::MatMul_{numbered[layer * len(MATRICES) + place]}"
            integers[name] = torch.from_numpy(arrays[f"{stem}_quantized"].astype(np.float32))
            scales[name] = torch.from_numpy(arrays[f"{stem}_scale"].astype(np.float32))
            tensors[name] = integers[name] * scales[name]
            names[name] = stem
            take(f"{name}.bias", f"encoder.layer.{layer}.{_IN_FILE[matrix]}.bias")
        for norm in ("norm1", "norm2"):
            for part in ("weight", "bias"):
                take(f"{layer}.{norm}.{part}", f"encoder.layer.{layer}.{_IN_FILE[norm]}.{part}")
    return Base(tensors, integers, scales, names)


def dithered(base: Base, seed: int) -> State:
    """The base's weights, each matrix at a random place within the step of its integers."""
    chance = torch.Generator().manual_seed(seed)
    state = dict(base.tensors)
    for name, whole in base.integers.items():
        state[name] = (whole + torch.rand(whole.shape, generator=chance) - 0.5) * base.scales[name]
    return state


def rounded(weight: Tensor, scale: Tensor) -> Tensor:
    return (weight / scale).round().clamp(-LARGEST, LARGEST) * scale


class Encoder(torch.nn.Module):
    """BERT with layers 0 … n-1 of a state; `with_head` adds the two layers that turn the first token into a score."""

    def __init__(
        self, state: State, *, layers: int = LAYERS, scales: State | None = None, with_head: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        self.layers = layers
        self.dropout = 0.0
        self.scales = scales
        for name in ("word", "position", "token_type"):
            self.register_buffer(name, state[name], persistent=False)
        chosen = [name for name in state if not name[0].isdigit() or int(name.partition(".")[0]) < layers]
        trained = [name for name in chosen if name not in ("word", "position", "token_type")]
        if with_head:
            chance = torch.Generator().manual_seed(seed)
            made = {
                "head.weight": torch.randn(WIDTH, WIDTH, generator=chance) * 0.02,
                "head.bias": torch.zeros(WIDTH),
                "score.weight": torch.randn(WIDTH, 1, generator=chance) * 0.02,
                "score.bias": torch.zeros(1),
            }
            state = {**made, **state}
            trained += [name for name in made if name not in trained]
        self.weights = torch.nn.ParameterDict(
            {name.replace(".", "/"): torch.nn.Parameter(state[name].clone()) for name in trained}
        )
        for name, scale in (scales or {}).items():
            self.register_buffer(f"scale_{name.replace('.', '_')}", scale, persistent=False)

    def weight(self, name: str) -> Tensor:
        return self.weights[name.replace(".", "/")]

    def state(self) -> State:
        """The unrounded weights, with the embeddings, by name."""
        found = {name.replace("/", "."): value.detach().float().cpu() for name, value in self.weights.items()}
        return {**found, **{name: getattr(self, name).cpu() for name in ("word", "position", "token_type")}}

    def effective(self) -> State:
        """The weights of one forward pass: rounded to the grid where there is one."""
        found: State = {}
        for key, weight in self.weights.items():
            name = key.replace("/", ".")
            if self.scales is not None and name in self.scales:
                scale = getattr(self, f"scale_{name.replace('.', '_')}")
                weight = weight + (rounded(weight, scale) - weight).detach()
            found[name] = weight
        return found

    def forward(self, w: State, ids: Tensor, lengths: Tensor, types: Tensor | None = None) -> Tensor:
        """The first token's state for each row of `ids`; `w` comes from `effective`."""
        rows, columns = ids.shape
        drop = self.dropout if self.training else 0.0
        seen = (torch.arange(columns, device=ids.device)[None] < lengths[:, None])[:, None, None, :]
        kinds = self.token_type[0] if types is None else self.token_type[types]
        x = self.word[ids] + self.position[:columns][None] + kinds
        x = F.dropout(F.layer_norm(x, (WIDTH,), w["norm.weight"], w["norm.bias"], EPSILON), drop)
        for layer in range(self.layers):

            def heads(name: str, layer: int = layer, x: Tensor = x) -> Tensor:
                y = x @ w[f"{layer}.{name}"] + w[f"{layer}.{name}.bias"]
                return y.view(rows, columns, HEADS, WIDTH // HEADS).transpose(1, 2)

            mixed = F.scaled_dot_product_attention(
                heads("query"), heads("key"), heads("value"), attn_mask=seen, dropout_p=drop
            )
            mixed = mixed.transpose(1, 2).reshape(rows, columns, WIDTH)
            mixed = mixed @ w[f"{layer}.output"] + w[f"{layer}.output.bias"]
            x = F.layer_norm(
                x + F.dropout(mixed, drop), (WIDTH,), w[f"{layer}.norm1.weight"], w[f"{layer}.norm1.bias"], EPSILON
            )
            wide = F.gelu(x @ w[f"{layer}.inner"] + w[f"{layer}.inner.bias"])
            wide = wide @ w[f"{layer}.outer"] + w[f"{layer}.outer.bias"]
            x = F.layer_norm(
                x + F.dropout(wide, drop), (WIDTH,), w[f"{layer}.norm2.weight"], w[f"{layer}.norm2.bias"], EPSILON
            )
        first = x[:, 0]
        if "head.weight" not in w:
            return first
        hidden = torch.tanh(first @ w["head.weight"] + w["head.bias"])
        return (hidden @ w["score.weight"] + w["score.bias"])[:, 0]


def every_second_layer(state: State) -> State:
    """The state of a model with half the layers: 1, 3, … 11 of a model with twelve."""
    halved = {name: value for name, value in state.items() if not name[0].isdigit()}
    for name, value in state.items():
        layer, _, rest = name.partition(".")
        if layer.isdigit() and int(layer) % 2 == 1:
            halved[f"{int(layer) // 2}.{rest}"] = value
    return halved


# Texts as tokens


class Tokens:
    """Many texts as one row of token ids, cut into padded batches on the device where they are."""

    def __init__(self, flat: np.ndarray, starts: np.ndarray, device: str) -> None:
        self.flat = torch.from_numpy(flat.astype(np.int32)).to(device)
        self.starts = torch.from_numpy(starts[:-1].astype(np.int64)).to(device)
        self.lengths = torch.from_numpy(np.diff(starts).astype(np.int64)).to(device)

    def __len__(self) -> int:
        return len(self.starts)

    def batch(self, rows: Tensor, limit: int) -> tuple[Tensor, Tensor]:
        """[CLS] text [SEP] for each row, and the lengths."""
        lengths = self.lengths[rows].clamp(max=limit)
        columns = torch.arange(int(lengths.max()) + 2, device=rows.device)[None]
        places = (self.starts[rows][:, None] + columns - 1).clamp(0, len(self.flat) - 1)
        ids = torch.where((columns >= 1) & (columns <= lengths[:, None]), self.flat[places].long(), 0)
        ids[:, 0] = CLS
        ids[torch.arange(len(rows), device=rows.device), lengths + 1] = SEP
        return ids, lengths + 2


def pairs(
    questions: Tokens, passages: Tokens, asked: Tensor, found: Tensor, skip: int, limits: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor]:
    """[CLS] question [SEP] passage [SEP], lengths and token types; `skip` leaves out the prefix of the questions."""
    first = (questions.lengths[asked] - skip).clamp(max=limits[0])[:, None]
    second = passages.lengths[found].clamp(max=limits[1])[:, None]
    columns = torch.arange(int((first + second).max()) + 3, device=asked.device)[None]
    in_first = (columns >= 1) & (columns <= first)
    in_second = (columns >= first + 2) & (columns <= first + second + 1)
    at_first = (questions.starts[asked][:, None] + skip + columns - 1).clamp(0, len(questions.flat) - 1)
    at_second = (passages.starts[found][:, None] + columns - first - 2).clamp(0, len(passages.flat) - 1)
    ids = torch.where(in_first, questions.flat[at_first].long(), 0)
    ids = torch.where(in_second, passages.flat[at_second].long(), ids)
    ids = torch.where((columns == first + 1) | (columns == first + second + 2), SEP, ids)
    ids[:, 0] = CLS
    types = ((columns >= first + 2) & (columns <= first + second + 2)).long()
    return ids, (first + second + 3)[:, 0], types


def by_length(lengths: Tensor, parts: int) -> Iterator[Tensor]:
    """Row numbers in a few parts of similar length, so that little is padded."""
    yield from torch.argsort(lengths).chunk(parts)


def half(rows: Tensor) -> torch.autocast:
    """Products in bfloat16 on a GPU; on a processor this is slower than float32."""
    return torch.autocast(rows.device.type, torch.bfloat16, enabled=rows.is_cuda)
