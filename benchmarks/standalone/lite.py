"""Beside TensorFlow Lite, which hands all of these nets to XNNPACK."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.standalone.native import compare
from benchmarks.standalone.nets import NETS, Net, to_lite, to_onnx
from benchmarks.standalone.rounds import contest

_BATCHES = (1, 8)


@dataclass(frozen=True)
class LiteRow:
    """Seconds of a call, and its ratio to TensorFlow Lite's."""

    where: str
    seconds: float
    by_lite: float


def present() -> bool:
    """True if the interpreter is installed."""
    return importlib.util.find_spec("ai_edge_litert") is not None


def rows(work: Path, rounds: int) -> list[LiteRow]:
    """One for each net and batch; raises AssertionError where results differ."""
    return [row for net in NETS for row in _rows(net, work, rounds)]


def write_nets(work: Path) -> dict[str, Path]:
    """Files of the nets for one sample, by name."""
    files = {net.name: work / f"{net.name}.tflite" for net in NETS}
    for net in NETS:
        files[net.name].write_bytes(to_lite(net, 1))
    return files


def _rows(net: Net, work: Path, rounds: int) -> list[LiteRow]:
    import relaxd

    model = relaxd.load(_built(net, work), threads=1)
    results = []
    for batch in _BATCHES:
        interpreter = _interpreter(net, batch)
        pixels = np.random.default_rng(0).standard_normal((batch, *net.shape)).astype(np.float32)
        arguments = pixels.transpose(0, 3, 1, 2) if pixels.ndim == 4 else pixels
        call = model.prepared({"x": np.ascontiguousarray(arguments)})
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], pixels)
        interpreter.invoke()
        wanted = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        compare(list(call().values()), [wanted])
        result = contest({"ours": call, "lite": interpreter.invoke}, rounds)
        where = f"{net.name} {batch}"
        results.append(LiteRow(where, result.median("ours"), result.ratio("ours", "lite")))
    return results


def _interpreter(net: Net, batch: int) -> Any:
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=to_lite(net, batch), num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


def _built(net: Net, work: Path) -> Path:
    from compiler import compile_model

    bundle = work / f"net-{net.name}"
    if not bundle.exists():
        options = {"verify": False, "profile": False, "flavour": "standalone"}
        dims = {"n": f"1:{max(_BATCHES)}"}
        compile_model(to_onnx(net), output=bundle, dims=dims, options=options)
    return bundle
