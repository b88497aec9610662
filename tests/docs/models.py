"""The small models that stand in for those of the pages, with their names, inputs and dims."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.models.known import package_model
from tests.support.models.small import convolutions, perceptron

WIDTH = 8


def encoder() -> onnx.ModelProto:
    """Token ids, a mask and types to states and their masked mean, as MiniLM has them."""
    draw = np.random.default_rng(5)
    tables = {
        "words": draw.standard_normal((200, WIDTH)).astype("float32"),
        "kinds": draw.standard_normal((2, WIDTH)).astype("float32"),
        "weights": draw.standard_normal((WIDTH, WIDTH)).astype("float32"),
        "last": np.array([-1]),
        "over": np.array([1]),
    }
    nodes = [
        helper.make_node("Gather", ["words", "input_ids"], ["word"]),
        helper.make_node("Gather", ["kinds", "token_type_ids"], ["kind"]),
        helper.make_node("Add", ["word", "kind"], ["embedded"]),
        helper.make_node("MatMul", ["embedded", "weights"], ["last_hidden_state"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Unsqueeze", ["mask", "last"], ["wide"]),
        helper.make_node("Mul", ["last_hidden_state", "wide"], ["kept"]),
        helper.make_node("ReduceSum", ["kept", "over"], ["sentence_embedding"], keepdims=0),
    ]
    axes = ["batch", "seq"]
    names = ("input_ids", "attention_mask", "token_type_ids")
    outputs = [("last_hidden_state", [*axes, WIDTH]), ("sentence_embedding", ["batch", WIDTH])]
    return _model(nodes, [(name, TensorProto.INT64, axes) for name in names], outputs, tables)


def rows(inner: int, outer: int) -> onnx.ModelProto:
    """x[n, inner] to y[n, outer], one product and a rectifier."""
    weights = {"w": np.random.default_rng(6).standard_normal((inner, outer)).astype("float32")}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "project"),
        helper.make_node("Relu", ["h"], ["y"], "clip"),
    ]
    return _model(nodes, [("x", TensorProto.FLOAT, ["n", inner])], [("y", ["n", outer])], weights)


def swish() -> onnx.ModelProto:
    """x[n, 32] to y[n, 32], a product and an operator of nobody's."""
    draw = np.random.default_rng(7)
    weights = {
        "w": draw.standard_normal((32, 32)).astype("float32"),
        "s": draw.standard_normal(32).astype("float32"),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"], "project"),
        helper.make_node("Swish", ["h", "s"], ["y"], "swish", domain="com.example", beta=1.5),
    ]
    model = _model(nodes, [("x", TensorProto.FLOAT, ["n", 32])], [("y", ["n", 32])], weights)
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    return model


def lay_out(folder: Path) -> None:
    """Writes every model that a page names, but those of torch, into the folder."""
    changed = perceptron()
    changed.graph.node[1].op_type = "Sigmoid"
    for name, model in {
        "changed.onnx": changed,
        "m.onnx": perceptron(),
        "model.onnx": perceptron(),
        "minilm.onnx": encoder(),
        "rows.onnx": rows(4, 4),
        "mlp.onnx": rows(32, 7),
        "classifier.onnx": rows(64, 10),
        "images.onnx": convolutions(),
        "custom.onnx": swish(),
    }.items():
        onnx.save(model, folder / name)


_ENCODER = """
import torch

class Encoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.words = torch.nn.Embedding(100, 8)
        self.last = torch.nn.Linear(8, 8)

    def forward(self, input_ids, attention_mask):
        return self.last(self.words(input_ids)) * attention_mask.unsqueeze(-1)

ids = torch.ones(2, 3, dtype=torch.int64)
torch.jit.save(torch.jit.trace(Encoder().eval(), (ids, ids)), "bert.pt")
"""


def lay_out_scripts(folder: Path) -> None:
    """Writes the models of torch, in a process of its own: torch stays out of that of the tests."""
    subprocess.run([sys.executable, "-c", _ENCODER], cwd=folder, check=True)
    shutil.copy(package_model("silero_vad", "data/silero_vad.jit"), folder)


def add_namesakes(folder: Path) -> None:
    """Puts packages named like ours into the folder, as a reader may have them; none is to be
    imported.
    """
    for name in ("service", "compiler", "artifacts"):
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text("raise SystemExit('of the reader')\n")


def _model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[tuple[str, int, list[Any]]],
    outputs: Sequence[tuple[str, list[Any]]],
    tables: dict[str, np.ndarray],
) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "small",
        [value(*arguments) for arguments in inputs],
        [value(name, TensorProto.FLOAT, shape) for name, shape in outputs],
        [numpy_helper.from_array(array, name) for name, array in tables.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
