"""ONNX models through every pass, in this process, beside ONNX Runtime."""

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import tvm
from tvm import relax

from compiler.codegen.generate import generate
from compiler.ir import import_model
from compiler.passes.manager import lower
from compiler.targets import Target
from relaxd.contract.request import CompileRequest
from tests.compiler.conftest import HOST
from tests.compiler.ir.onnx.running import Arrays, Built, assert_close, session_of


def build(
    model: onnx.ModelProto, dims: Mapping[str, Any] | None = None, target: Target = HOST
) -> Built:
    """The model compiled as for a bundle."""
    imported = import_model(model, CompileRequest.of(dims=dict(dims or {})))
    executable = generate(lower(imported.module, target, imported.ranges), target)
    return Built(imported, relax.VirtualMachine(executable, tvm.cpu()))


def assert_like_onnxruntime(
    model: onnx.ModelProto,
    feeds: Sequence[Arrays],
    dims: Mapping[str, Any] | None = None,
    target: Target = HOST,
    tolerance: float = 1e-4,
) -> None:
    """The model, compiled once, agrees with ONNX Runtime on every feed."""
    built, session = build(model, dims, target), session_of(model)
    names = [output.name for output in model.graph.output]
    for feed in feeds:
        assert_close(built.run(feed), session.run(None, dict(feed)), names, tolerance)
