"""commonplace-embed-s: the merge gives the bytes that the catalog names, and their vectors are what they should be."""

from __future__ import annotations

import hashlib
import json
import random
from pathlib import Path

import numpy as np
import pytest

import commonplace
from commonplace.embedding import create_embedder, difference
from commonplace.embedding.catalog import (
    ARCTIC_S,
    EMBED_S,
    EMBED_S_1,
    WEIGHTS,
    Model,
    default_models_folder,
    model_path,
)
from commonplace.embedding.onnx import OnnxEmbedder, WordPiece
from commonplace.embedding.pull import pull
from commonplace.errors import Corrupt, Unavailable

MEMORIES = [
    "Ines: We finally brought the little one home from the shelter, she barks at the postman all day.",
    "Ines: I had to hand in my badge on Friday, the whole department was closed.",
    "Ines: My knees gave up after the half marathon, so no running until spring.",
    "Ines: The doctor said I must not have anything with gluten any more.",
    "Ines: We signed the papers, from May on we live in Porto.",
    "Ines: I practise the cello every evening after work.",
    "Tom: My brother and I do not talk since the funeral.",
    "Tom: I got in! I start medicine in Leiden in September.",
    "Tom: The twins turned three yesterday, there was cake everywhere.",
    "Tom: I sold the car and go everywhere by bike now.",
    "Tom: Heights are not for me, I froze on the second rung of the ladder.",
    "Tom: I spend my Saturdays handing out soup at the station.",
    "Ines: That sounds wonderful, tell me more about it!",
    "Tom: Ha, I know exactly what you mean.",
    "Ines: Did you see what Tom wrote about the weekend?",
    "Tom: How is Ines doing these days?",
    "Ines: Tom, what do you think I should do?",
    "Tom: Ines, I think you are right about that.",
    "Ines: I will ask Tom when I see him.",
    "Tom: Ines has always been like that, you know her.",
]


@pytest.mark.promise("embedding-merge")
@pytest.mark.parametrize("model", [EMBED_S, EMBED_S_1], ids=lambda model: model.id)
def test_a_merge_gives_the_bytes_that_the_catalog_names(model: Model) -> None:
    assert model.difference is not None
    packed = difference.packaged(model.difference)
    assert len(packed) < 8_000_000
    merged = difference.merge((model_path(ARCTIC_S, default_models_folder()) / WEIGHTS).read_bytes(), packed)
    (digest,) = model.files[0].digests
    assert (hashlib.sha256(merged).hexdigest(), len(merged)) == (digest.sha256, digest.size)


def test_a_difference_to_another_model_is_refused() -> None:
    assert EMBED_S.difference is not None
    packed = difference.packaged(EMBED_S.difference)
    with pytest.raises(Corrupt, match="does not fit"):
        difference.merge(b"", packed)
    with pytest.raises(Corrupt, match="not an ONNX file"):
        difference.merge(b"\x07" * 10, packed)


def test_a_pull_makes_our_model_from_an_installed_base_without_a_source(tmp_path) -> None:
    base = pull(ARCTIC_S, folder=tmp_path, source_folder=model_path(ARCTIC_S, default_models_folder()))
    told: list[str] = []
    made = pull(EMBED_S, folder=tmp_path, progress=lambda done, total, label: told.append(label))
    assert (made / WEIGHTS).read_bytes() != (base / WEIGHTS).read_bytes()
    assert f"merging {WEIGHTS}" in told
    assert not list(tmp_path.glob(".pull-*"))


def test_the_first_text_makes_our_model_from_an_installed_base(tmp_path) -> None:
    pull(ARCTIC_S, folder=tmp_path, source_folder=model_path(ARCTIC_S, default_models_folder()))
    expected = create_embedder(EMBED_S.id).embed(MEMORIES[:1], purpose="passage")
    for _ in ("absent", "damaged"):
        vector = OnnxEmbedder(EMBED_S, folder=tmp_path).embed(MEMORIES[:1], purpose="passage")
        assert (vector == expected).all()
        with (tmp_path / EMBED_S.id / WEIGHTS).open("r+b") as weights:
            weights.write(b"damaged")


def test_the_vectors_of_version_0_2_0_are_searched_with_its_weights(tmp_path) -> None:
    pull(ARCTIC_S, folder=tmp_path, source_folder=model_path(ARCTIC_S, default_models_folder()))
    file = tmp_path / "book.db"
    with commonplace.open(file, embedder=create_embedder(EMBED_S_1.id, models_folder=tmp_path)) as book:
        book.space("user", "u1").files.write("/a", MEMORIES[0])
        book.reindex()
    with commonplace.open(file, embedder=create_embedder(models_folder=tmp_path)) as book:
        found = book.space("user", "u1").search("something else")
        assert (book.stats().model, found.notices) == (f"{EMBED_S.id}@b1f081c3;sentences=1", ())
        assert "meaning" in found[0].parts


def test_a_damaged_base_makes_no_model(tmp_path) -> None:
    path = pull(ARCTIC_S, folder=tmp_path, source_folder=model_path(ARCTIC_S, default_models_folder()))
    with (path / WEIGHTS).open("r+b") as weights:
        weights.write(b"damaged")
    with pytest.raises(Unavailable, match="is not installed; run: commonplace model pull"):
        OnnxEmbedder(EMBED_S, folder=tmp_path).embed(MEMORIES[:1], purpose="passage")


def test_what_is_packed_is_unpacked_alike() -> None:
    changes = [difference.Change("a", "add", bytes([0, 255, 3])), difference.Change("b", "set", b"\0\0\x80?" * 2)]
    assert list(difference.unpack(difference.pack(changes))) == changes


@pytest.mark.promise("embedding-our-graph")
def test_a_thousand_texts_have_the_vectors_that_the_integers_give() -> None:
    """A forward pass in numpy, from the base's integers and the difference, against onnxruntime and the merged file."""
    encoder = NumpyEncoder()
    embedder = OnnxEmbedder(EMBED_S, folder=default_models_folder())
    chance = random.Random(3)
    words = " ".join(MEMORIES).split()
    texts = [" ".join(chance.choices(words, k=chance.randrange(1, 9))) for _ in range(1_000)]
    vectors = embedder.embed(texts, purpose="passage")
    tokenizer = WordPiece.from_file(model_path(EMBED_S, default_models_folder()) / "vocab.txt", max_tokens=512)
    by_length: dict[int, list[int]] = {}
    rows = [tokenizer.encode(text) for text in texts]
    for place, row in enumerate(rows):
        by_length.setdefault(len(row), []).append(place)
    cosines = np.empty(len(texts))
    for places in by_length.values():
        cosines[places] = (encoder([rows[place] for place in places]) * vectors[places]).sum(-1)
    # onnxruntime rounds the activations to 8 bits, numpy does not.
    assert cosines.min() > 0.95
    assert cosines.mean() > 0.985


class NumpyEncoder:
    """BERT in float32, with the weights of the base plus the difference."""

    def __init__(self) -> None:
        data = (model_path(ARCTIC_S, default_models_folder()) / WEIGHTS).read_bytes()
        places = difference.tensors(data)
        assert EMBED_S.difference is not None
        changed = {one.name: one for one in difference.unpack(difference.packaged(EMBED_S.difference))}

        def floats(name: str) -> np.ndarray:
            start, end = places[name]
            return np.frombuffer(changed[name].values if name in changed else data[start:end], np.float32)

        def table(name: str) -> np.ndarray:
            start, end = places[f"embeddings.{name}_embeddings.weight_quantized"]
            scale = floats(f"embeddings.{name}_embeddings.weight_scale")[0]
            return ((np.frombuffer(data[start:end], np.uint8).astype(np.float32) - 128) * scale).reshape(-1, 384)

        def matrix(stem: str) -> np.ndarray:
            start, end = places[f"{stem}_quantized"]
            whole = np.frombuffer(data[start:end], np.int8).astype(np.float32)
            whole = whole + np.frombuffer(changed[f"{stem}_quantized"].values, np.int8)
            scale = floats(f"{stem}_scale")
            return whole.reshape(-1, len(scale)) * scale

        stems = sorted(
            {name.removesuffix("_quantized") for name in changed if name.startswith("onnx::MatMul")},
            key=lambda stem: int(stem.rpartition("_")[2]),
        )
        self._matrices = [matrix(stem) for stem in stems]
        self._floats = floats
        self._words, self._positions, self._types = map(table, ("word", "position", "token_type"))

    def __call__(self, ids: list[list[int]]) -> np.ndarray:
        """Unit vectors of texts with the same number of tokens."""
        texts, tokens = np.shape(ids)
        x = self._words[np.array(ids)] + self._positions[:tokens] + self._types[0]
        x = self._norm(x.reshape(-1, 384), "embeddings.LayerNorm")
        for layer in range(12):
            at = f"encoder.layer.{layer}"
            query, key, value, output, inner, outer = self._matrices[layer * 6 : layer * 6 + 6]
            q, k, v = (
                (x @ matrix + self._floats(f"{at}.attention.self.{name}.bias"))
                .reshape(texts, tokens, 12, 32)
                .transpose(0, 2, 1, 3)
                for matrix, name in ((query, "query"), (key, "key"), (value, "value"))
            )
            weights = np.exp(q @ k.transpose(0, 1, 3, 2) / np.float32(np.sqrt(32)))
            mixed = (weights / weights.sum(-1, keepdims=True)) @ v
            mixed = mixed.transpose(0, 2, 1, 3).reshape(-1, 384) @ output
            mixed = mixed + self._floats(f"{at}.attention.output.dense.bias")
            x = self._norm(x + mixed, f"{at}.attention.output.LayerNorm")
            wide = x @ inner + self._floats(f"{at}.intermediate.dense.bias")
            wide = wide * (1 + _erf(wide / np.float32(np.sqrt(2)))) / 2
            x = self._norm(x + wide @ outer + self._floats(f"{at}.output.dense.bias"), f"{at}.output.LayerNorm")
        first: np.ndarray = x.reshape(texts, tokens, 384)[:, 0]
        return first / np.linalg.norm(first, axis=-1, keepdims=True)

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        centred = x - x.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12)
        return scaled * self._floats(f"{name}.weight") + self._floats(f"{name}.bias")


def _erf(x: np.ndarray) -> np.ndarray:
    """Abramowitz and Stegun 7.1.26; the error is below 2e-7."""
    t = 1 / (1 + 0.3275911 * np.abs(x))
    terms = t * (0.254829592 + t * (-0.284496736 + t * (1.421413741 + t * (-1.453152027 + t * 1.061405429))))
    return np.sign(x) * (1 - terms * np.exp(-(x**2)))


# How much it finds

FLOOR = 0.75
"""The share with an answer among the five nearest of 518 passages: 0.83 with the trained model, 0.51 with its base."""


@pytest.mark.promise("embedding-our-floor")
def test_only_the_trained_model_finds_what_people_said():
    """`training/prepare.py` holds these questions out of training."""
    assert recall_at_5(EMBED_S.id) >= FLOOR > recall_at_5(ARCTIC_S.id)


def recall_at_5(model: str) -> float:
    data = json.loads(Path(__file__).with_name("persona_chat.json").read_text(encoding="utf-8"))
    embedder = create_embedder(model)
    passages = embedder.embed(data["passages"], purpose="passage")
    questions = embedder.embed([question for question, _ in data["questions"]], purpose="query")
    nearest = np.argsort(-(questions @ passages.T), axis=1)[:, :5]
    found = [set(row) & set(answers) for row, (_, answers) in zip(nearest, data["questions"], strict=True)]
    return sum(map(bool, found)) / len(found)
