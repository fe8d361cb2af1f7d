"""The embedder of known models, with the installed default model (`make install` pulls it)."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from commonplace.embedding import Embedder, calibrate, create_embedder
from commonplace.embedding.catalog import DEFAULT_MODEL, MODELS, default_models_folder, installed
from commonplace.embedding.onnx import OnnxEmbedder
from commonplace.errors import Unavailable

TEXTS = [
    "We deploy with a blue/green switch.",
    "",
    "My cat is called Tom and sleeps all day.",
    "日本語のメモ",
    "We deploy with a blue/green change.",  # as many tokens as the first: an equal-length batch mate
    "a long note, " * 300,
]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return create_embedder()


def test_rows_are_float32_of_length_one_for_any_text(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS, purpose="passage")
    assert vectors.shape == (len(TEXTS), embedder.dimensions)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1.0, rtol=1e-6)


def test_no_texts_give_no_rows(embedder: Embedder) -> None:
    assert embedder.embed([], purpose="query").shape == (0, embedder.dimensions)


def test_a_text_has_the_same_bits_alone_and_in_any_batch(embedder: Embedder) -> None:
    alone = {text: embedder.embed([text], purpose="passage")[0].tobytes() for text in TEXTS}
    rng = random.Random(7)
    for _ in range(5):
        batch = rng.choices(TEXTS, k=6)
        rows = embedder.embed(batch, purpose="passage")
        assert [row.tobytes() for row in rows] == [alone[text] for text in batch]


def test_a_text_has_the_same_bits_from_many_threads_that_load_the_model_together(embedder: Embedder) -> None:
    fresh = create_embedder()
    expected = embedder.embed(TEXTS[:3], purpose="passage").tobytes()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: fresh.embed(TEXTS[:3], purpose="passage").tobytes(), range(8)))
    assert answers == [expected] * 8


def test_a_question_is_nearer_to_its_answer_than_to_anything_else(embedder: Embedder) -> None:
    passages = [
        "Rollouts go to the idle half of the servers first; traffic is switched when it is healthy.",
        "My cat is called Tom and sleeps all day.",
        "The invoice of March was paid twice.",
    ]
    questions = [
        "How do we release a new version?",
        "What is my pet's name?",
        "Which bill did we pay two times?",
    ]
    cosines = embedder.embed(questions, purpose="query") @ embedder.embed(passages, purpose="passage").T
    assert cosines.argmax(axis=1).tolist() == [0, 1, 2]


def test_a_paraphrase_is_nearer_than_an_unrelated_text(embedder: Embedder) -> None:
    one, paraphrase, unrelated = embedder.embed(
        [
            "The meeting was moved to Friday.",
            "They postponed the appointment until Friday.",
            "Bananas are yellow.",
        ],
        purpose="passage",
    )
    assert one @ paraphrase > one @ unrelated + 0.05


def test_people_see_an_answer_as_near_one_and_an_unrelated_text_as_near_zero(embedder: Embedder) -> None:
    query = embedder.embed(["What is the capital of France?"], purpose="query")[0]
    answer, unrelated = embedder.embed(
        ["Paris is the capital and largest city of France.", "My cat is called Tom."], purpose="passage"
    )
    assert calibrate(float(query @ answer), embedder.calibration) > 0.8
    assert calibrate(float(query @ unrelated), embedder.calibration) < 0.2


def test_the_query_prefix_is_put_before_queries_only(embedder: Embedder) -> None:
    prefixed = embedder.embed([DEFAULT_MODEL.query_prefix + "cats"], purpose="passage")
    assert embedder.embed(["cats"], purpose="query").tobytes() == prefixed.tobytes()
    assert embedder.embed(["cats"], purpose="passage").tobytes() != prefixed.tobytes()


def test_pooling_and_normalisation_change_the_vectors_and_the_identity(embedder: Embedder) -> None:
    mean = create_embedder(pooling="mean")
    raw = create_embedder(normalize=False)
    assert (mean.identity, raw.identity) == (
        f"{embedder.identity};pooling=mean",
        f"{embedder.identity};normalize=false",
    )
    own, pooled, long = (one.embed(["cats"], purpose="passage")[0] for one in (embedder, mean, raw))
    assert own @ pooled < 0.99
    assert np.linalg.norm(long) > 1.5
    np.testing.assert_allclose(long / np.linalg.norm(long), own, rtol=1e-5)


def test_saying_the_models_own_pooling_changes_nothing(embedder: Embedder) -> None:
    assert create_embedder(pooling="cls", normalize=True).identity == embedder.identity


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.id)
def test_each_installed_model_tells_near_from_far(model: object) -> None:
    known = next(one for one in MODELS if one is model)
    if not installed(known, default_models_folder()):
        pytest.skip(f"{known.id} is not installed")
    one = OnnxEmbedder(known, folder=default_models_folder())
    query = one.embed(["What is my pet's name?"], purpose="query")[0]
    near, far = one.embed(["My cat is called Tom.", "The invoice was paid twice."], purpose="passage")
    shown = [calibrate(float(query @ passage), one.calibration) for passage in (near, far)]
    assert shown[0] > 0.2
    assert shown[1] < min(0.25, shown[0] - 0.15)


def test_a_model_that_is_not_installed_names_the_command_that_pulls_it(tmp_path: Path) -> None:
    with pytest.raises(Unavailable) as caught:
        create_embedder(models_folder=tmp_path).embed(["x"], purpose="query")
    assert str(caught.value) == (
        "embedding model commonplace-embed-s (34 MB) is not installed; run: commonplace model pull"
    )
    with pytest.raises(Unavailable, match=r"run: commonplace model pull all-MiniLM-L6-v2$"):
        create_embedder("all-MiniLM-L6-v2", models_folder=tmp_path).embed(["x"], purpose="query")


def test_a_model_pulled_after_a_failed_call_is_used_by_the_same_embedder(tmp_path: Path) -> None:
    waiting = create_embedder(models_folder=tmp_path)
    with pytest.raises(Unavailable):
        waiting.embed(["cats"], purpose="query")
    (tmp_path / DEFAULT_MODEL.id).symlink_to(default_models_folder() / DEFAULT_MODEL.id)
    assert waiting.embed(["cats"], purpose="query").shape == (1, 384)


def test_changed_weights_are_never_used(tmp_path: Path) -> None:
    shutil.copytree(default_models_folder() / DEFAULT_MODEL.id, tmp_path / DEFAULT_MODEL.id)
    with (tmp_path / DEFAULT_MODEL.id / "model.onnx").open("r+b") as weights:
        weights.seek(20_000_000)
        byte = weights.read(1)
        weights.seek(20_000_000)
        weights.write(bytes([byte[0] ^ 1]))
    with pytest.raises(Unavailable, match="damaged"):
        create_embedder(models_folder=tmp_path).embed(["x"], purpose="query")


def test_other_weights_under_the_same_name_are_another_identity() -> None:
    weights, vocabulary = DEFAULT_MODEL.files
    other = replace(DEFAULT_MODEL, files=(MODELS[1].files[0], vocabulary))
    assert weights.digests != other.files[0].digests
    assert other.identity != DEFAULT_MODEL.identity


@pytest.mark.promise("embedding-no-telemetry")
def test_the_model_keeps_no_account_of_its_use_for_anybody(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from commonplace.embedding import create_embedder; "
        "create_embedder(models_folder=Path(sys.argv[1])).embed(['cats'], purpose='query')"
    )
    kept = {
        name: value for name, value in os.environ.items() if name not in ("ORT_DISABLE_TELEMETRY", "XDG_CACHE_HOME")
    }
    command = [sys.executable, "-c", program, str(default_models_folder())]
    subprocess.run(command, env={**kept, "HOME": str(tmp_path)}, check=True)
    assert list(tmp_path.rglob("*")) == []


def test_making_an_embedder_loads_neither_numpy_nor_onnxruntime() -> None:
    program = (
        "import sys; from commonplace.embedding import create_embedder; create_embedder(); "
        "create_embedder('ollama:m'); print([m for m in ('numpy', 'onnxruntime') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
