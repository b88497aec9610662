"""WebAssembly libraries in node's engine, each call in a memory of its own."""

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from compiler.verify.emulation import engine
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.tensors import storage_of
from relaxd.loader.bundles.bundle import open_bundle
from relaxd.loader.tensors.binding import Binding
from tests.fuzz.hostile.engines import SIDES, STATUSES, Answer, Question, Refused

_PROGRAM = Path(__file__).with_suffix(".mjs")


def wasm(question: Question) -> list[Answer]:
    """Once with each byte around."""
    folder, manifest = Path(question.bundle), _manifest(question.bundle)
    binding = Binding(manifest.inputs, manifest.dims)
    arrays = binding.arrays(question.feed)
    dims = binding.solve(tuple(array.shape for array in arrays))
    weights = folder / manifest.weights_file
    order = {
        "library": str(folder / manifest.library),
        "prefix": manifest.entry,
        "dims": [dims[name] for name in sorted(dims)],
        "inputs": [base64.b64encode(np.asarray(array).tobytes()).decode() for array in arrays],
        "weights": str(weights) if weights.is_file() else "",
    }
    dtypes = [np.dtype(storage_of(spec.dtype)) for spec in manifest.outputs]
    return [_answer({**order, "byte": byte}, dtypes) for _, byte in SIDES]


@cache
def _manifest(path: str) -> Manifest:
    with open_bundle(path) as bundle:
        return bundle.manifest


def _answer(order: Mapping[str, Any], dtypes: Sequence[np.dtype]) -> Answer:
    node = _node()
    assert node.stdin is not None
    assert node.stdout is not None
    node.stdin.write(json.dumps(order) + "\n")
    node.stdin.flush()
    answer = json.loads(node.stdout.readline())
    if "trap" in answer:
        return Refused("trap", answer["trap"], typed=False)
    if "status" in answer:
        return Refused(STATUSES[answer["status"] - 1], answer["why"])
    outputs = []
    for new, dtype in zip(answer["outputs"], dtypes, strict=True):
        content = np.frombuffer(base64.b64decode(new["data"]), np.uint8)
        shape = new["shape"]
        if min(shape, default=0) < 0 or prod(shape) * dtype.itemsize != content.size:
            return Refused("shape", f"an output is of {shape}", typed=False)
        outputs.append(content.view(dtype).reshape(shape))
    return outputs


@cache
def _node() -> "subprocess.Popen[str]":
    program = engine.find()
    assert program is not None
    command = [program, *engine.flags(program), str(_PROGRAM)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
