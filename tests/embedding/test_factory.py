"""`create_embedder`: which name makes which embedder, and what is refused."""

from __future__ import annotations

import importlib.util

import pytest

import commonplace.embedding
from commonplace.embedding import EndpointOptions, calibrate, create_embedder
from commonplace.embedding.catalog import MODELS
from commonplace.errors import ConfigurationError


@pytest.mark.parametrize(
    ("name", "identity"),
    [
        (None, "commonplace-embed-s@800b3b3e"),
        ("commonplace-embed-s", "commonplace-embed-s@800b3b3e"),
        ("snowflake-arctic-embed-s", "snowflake-arctic-embed-s@f93ff225"),
        ("Snowflake/snowflake-arctic-embed-s", "snowflake-arctic-embed-s@f93ff225"),
        ("Xenova/all-MiniLM-L6-v2", "all-MiniLM-L6-v2@8199be6f"),
        ("all-minilm-l6-v2", "all-MiniLM-L6-v2@8199be6f"),
        ("BAAI/bge-small-en-v1.5", "bge-small-en-v1.5@871ab4e7"),
        ("ollama:nomic-embed-text:v1.5", "ollama:nomic-embed-text:v1.5@http://localhost:11434/v1"),
        ("ollama:m@http://10.0.0.5:11434/v1", "ollama:m@http://10.0.0.5:11434/v1"),
        ("openai:m@http://host:8080/v1/", "openai:m@http://host:8080/v1"),
        ("openai:text-embedding-3-small", "openai:text-embedding-3-small@https://api.openai.com/v1"),
    ],
)
def test_a_name_gives_the_embedder_with_this_identity(name: str | None, identity: str) -> None:
    assert create_embedder(name).identity == identity


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "no-such-model",
            "unknown embedding model 'no-such-model'; known: commonplace-embed-s",
        ),
        ("cohere:m", "unknown embedding model 'cohere:m'"),
        ("openai:m@ftp://host/v1", "write the endpoint as openai:MODEL@https://host/v1"),
        ("openai:@http://host/v1", "write the endpoint as openai:MODEL@https://host/v1"),
        ("ollama:", "write the endpoint as ollama:MODEL"),
        ("openai:m@http://user:secret@host/v1", "must not contain credentials"),
        ("openai:m@http://host/v1?key=secret", "must not contain credentials"),
    ],
)
def test_a_wrong_name_is_refused_with_what_to_write(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        create_embedder(name)
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_missing_package_names_the_pip_command() -> None:
    if importlib.util.find_spec("sentence_transformers") is not None:
        pytest.skip("sentence-transformers is installed")
    with pytest.raises(ConfigurationError, match=r"pip install 'commonplace-memory\[sentence-transformers\]'"):
        create_embedder("sentence-transformers:all-MiniLM-L6-v2")


def test_pooling_is_refused_where_it_cannot_be_chosen() -> None:
    with pytest.raises(ConfigurationError, match="leave it unset"):
        create_embedder("ollama:m", pooling="mean")
    with pytest.raises(ConfigurationError, match="'cls' or 'mean'"):
        create_embedder(pooling="max")  # type: ignore[arg-type]


def test_a_cosine_is_mapped_between_the_floor_and_the_ceiling_and_clipped_outside() -> None:
    shown = [calibrate(cosine, (0.5, 0.75)) for cosine in (-1.0, 0.5, 0.625, 0.75, 1.0)]
    assert shown == [0.0, 0.0, 0.5, 1.0, 1.0]


def test_the_api_key_is_not_shown_in_a_log() -> None:
    assert "secret" not in repr(EndpointOptions(api_key="secret"))


def test_no_two_models_share_a_name_and_each_file_has_a_source() -> None:
    names = [name.casefold() for model in MODELS for name in (model.id, *model.aliases)]
    assert len(names) == len(set(names))
    for model in MODELS:
        members = {name for source in (model.base or model).sources for name in source.members}
        assert members == {file.name for file in model.files}


def test_the_public_names_are_those_that_are_listed() -> None:
    assert sorted(commonplace.embedding.__all__) == [
        "Embedder",
        "EndpointOptions",
        "Purpose",
        "calibrate",
        "create_embedder",
    ]
    assert all(hasattr(commonplace.embedding, name) for name in commonplace.embedding.__all__)
