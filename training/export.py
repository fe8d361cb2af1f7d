"""Stage 5: `python training/export.py --base model.onnx --weights a.pt b.pt --share 0.75 OUT.xz [--onnx MERGED.onnx]`.

Averages the trained weights and the base's, rounds them to the base's grid, and writes the difference that the package
ships. Prints the size and hash of the merged file, which go into `commonplace.embedding.catalog`.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from commonplace.embedding.difference import Change, merge, pack
from encoder import LARGEST, Base, State, read_base
from evaluate import averaged


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("difference", type=Path)
    parser.add_argument("--base", type=Path, required=True)
    parser.add_argument("--weights", type=Path, nargs="+", required=True)
    parser.add_argument("--share", type=float, default=0.75)
    parser.add_argument("--onnx", type=Path, help="write the merged model there too")
    options = parser.parse_args(arguments)
    base = read_base(options.base)
    state = averaged(base, [torch.load(path) for path in options.weights], options.share)
    write(options.difference, base, state, options.base, options.onnx)


def write(difference: Path, base: Base, state: State, base_file: Path, merged_file: Path | None = None) -> None:
    packed = pack(changes(base, state))
    difference.write_bytes(packed)
    merged = merge(base_file.read_bytes(), packed)
    if merged_file is not None:
        merged_file.write_bytes(merged)
    print(f"difference: {len(packed):,} bytes; merged: {len(merged):,} bytes, {hashlib.sha256(merged).hexdigest()}")


def changes(base: Base, state: State) -> list[Change]:
    """Integers to add to each matrix, and new values of all vectors."""
    found = []
    for name, stem in base.file_names.items():
        if name in base.scales:
            whole = (state[name] / base.scales[name]).round().clamp(-LARGEST, LARGEST)
            added = (whole - base.integers[name]).numpy().astype(np.int8)
            found.append(Change(f"{stem}_quantized", "add", added.tobytes()))
        else:
            found.append(Change(stem, "set", state[name].numpy().astype("<f4").tobytes()))
    return found


if __name__ == "__main__":
    main()
