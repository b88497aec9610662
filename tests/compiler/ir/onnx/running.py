"""Small models imported once and run at several shapes beside ONNX Runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime
import tvm
from onnx import helper, numpy_helper
from tvm import relax

from compiler.codegen.tail_calls import without_tail_calls
from compiler.ir import import_model
from compiler.ir.imported import Imported
from relaxd.contract.request import CompileRequest
from tests.compiler.quick_code import QUICK, register_lowering

onnxruntime.disable_telemetry_events()

Arrays = Mapping[str, Any]
"""Arrays or NumPy scalars by name."""


def model_of(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, str],
    constants: Arrays | None = None,
    opset: int = 19,
    outputs: Sequence[str] | None = None,
) -> onnx.ModelProto:
    """A model whose inputs are spelled like requests (`float32[n,3,h]`) and whose outputs are those
    of all nodes unless named.
    """
    wanted = outputs or [name for node in nodes for name in node.output if name]
    infos = [_info(name, spec) for name, spec in inputs.items()]
    graph = helper.make_graph(
        list(nodes),
        "graph",
        infos,
        [helper.make_empty_tensor_value_info(name) for name in wanted],
        [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


def _info(name: str, spec: str) -> onnx.ValueInfoProto:
    dtype, _, axes = spec.rstrip("]").partition("[")
    shape = [int(axis) if axis.isdigit() else axis for axis in axes.split(",") if axis]
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape
    )


@dataclass(frozen=True)
class Built:
    """An imported model compiled for this machine, its loops as TVM's operators have them."""

    imported: Imported
    machine: relax.VirtualMachine

    def run(self, feed: Arrays) -> list[np.ndarray]:
        arguments = [
            tvm.runtime.tensor(np.require(feed[spec.name], requirements="C"))
            for spec in self.imported.inputs
        ]
        return [output.numpy() for output in self.machine["main"](*arguments)]


def build(
    model: onnx.ModelProto,
    dims: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Built:
    """Import with dims of any extent, 0 included, unless they or the inputs are declared."""
    names = () if inputs else (name for info in model.graph.input for name in _names(info))
    imported = import_model(
        model,
        CompileRequest.of(dims={**dict.fromkeys(names, (0, None)), **(dims or {})}, inputs=inputs),
    )
    steps = relax.transform
    with QUICK, tvm.transform.PassContext(opt_level=1):
        order = [
            steps.LegalizeOps(),
            steps.AnnotateTIROpPattern(),
            steps.FoldConstant(),
            steps.FuseOps(),
            steps.FuseTIR(),
        ]
        lowered = tvm.transform.Sequential(order)(imported.module)
        executable = relax.build(lowered, QUICK, tir_pipeline=register_lowering())
    return Built(imported, relax.VirtualMachine(without_tail_calls(executable), tvm.cpu()))


def _names(info: onnx.ValueInfoProto) -> list[str]:
    return [
        axis.dim_param for axis in info.type.tensor_type.shape.dim if axis.dim_param.isidentifier()
    ]


def assert_close(
    got: Sequence[np.ndarray],
    wanted: Sequence[np.ndarray],
    names: Sequence[str],
    tolerance: float = 1e-4,
) -> None:
    assert len(got) == len(wanted)
    for mine, theirs, name in zip(got, wanted, names, strict=True):
        assert mine.dtype == theirs.dtype, name
        assert mine.shape == theirs.shape, name
        np.testing.assert_allclose(
            mine.astype("f8"), theirs.astype("f8"), rtol=tolerance, atol=tolerance, err_msg=name
        )


def session_of(model: onnx.ModelProto) -> onnxruntime.InferenceSession:
    """ONNX Runtime on one thread."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    return onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def assert_like_onnxruntime(
    model: onnx.ModelProto,
    feeds: Sequence[Arrays],
    dims: Mapping[str, Any] | None = None,
    tolerance: float = 1e-4,
) -> Built:
    """The model, compiled once, agrees with ONNX Runtime on every feed."""
    built = build(model, dims)
    session = session_of(model)
    names = [output.name for output in model.graph.output]
    for feed in feeds:
        assert_close(built.run(feed), session.run(None, dict(feed)), names, tolerance)
    return built


def normal(*shape: int, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    return np.random.default_rng((seed, *shape)).standard_normal(shape).astype(dtype)
