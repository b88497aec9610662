"""torch as the reference of a `.pt2` program: every node of the file called as torch's operator.

torch.export.load is not used: it unpickles what an archive says are sample inputs, and evaluates
the texts of sizes. Here nothing of a file is evaluated or unpickled.
"""

import math
import operator
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.aten import torchvision
from compiler.ir.aten.torch_package import load_torch
from compiler.ir.pt2.nodes import number_of, read_graph, states_of
from compiler.ir.pt2.program import read_program
from compiler.ir.pt2.tensors import DTYPES
from compiler.verify.reference.perturbation import perturb
from compiler.verify.reference.torch_quantized import operators
from compiler.verify.reference.torch_tensors import array_from, tensor_from

_KEYWORD = 2
_FLOATS = ("float16", "bfloat16", "float32")
_HIGHER_ORDER = "torch.ops.higher_order."
_PYTHON = {
    **{f"_operator.{name}": getattr(operator, name) for name in operator.__all__ if name in (
        "add", "sub", "mul", "floordiv", "truediv", "mod", "neg", "pow", "eq", "ne", "lt", "le",
        "gt", "ge", "abs", "and_", "or_", "not_")},
    "math.trunc": math.trunc, "math.floor": math.floor, "math.ceil": math.ceil,
    "torch.sym_max": max, "torch.sym_min": min, "torch.sym_float": float, "torch.sym_int": int,
    "torch.sym_not": operator.not_, "torch._sym_sqrt": math.sqrt, "torch.sym_sqrt": math.sqrt,
}  # fmt: skip
_IGNORED = ("aten._assert", "aten.sym_constrain_range")


class ExportedProgram:
    """Runs a program with inputs by name; buffers start every call as the file has them, or as the
    feeds do.

    wide: parameters, buffers, inputs and the dtypes that nodes name are float64. perturbation: the
    seed by which parameters and buffers are moved (see `perturbation`), None for unmoved ones.
    """

    def __init__(self, model: str, wide: bool = False, perturbation: int | None = None) -> None:
        self._torch = load_torch()
        torchvision.define(self._torch)
        self._wide = wide
        self._quantized = operators(self._torch, wide)
        self._program = read_program(Path(model))
        self._states = {
            state.path for state in states_of(self._program, *read_graph(self._program))
        }
        random = None if perturbation is None else np.random.default_rng(perturbation)
        self._stored = {
            stored.path: self._widen(tensor_from(self._torch, _moved(stored.data, random)))
            for stored in self._program.stored
        }
        self.name = f"torch {self._torch.__version__}" + (" in float64" if wide else "")

    def _widen(self, tensor: Any) -> Any:
        return tensor.double() if self._wide and tensor.is_floating_point() else tensor

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Outputs by name; as in compiler.verify.reference.onnx.Engine."""
        arguments = {
            name: self._widen(tensor_from(self._torch, array)) for name, array in feeds.items()
        }
        values: dict[str, Any] = {
            argument.value: arguments[argument.name] for argument in self._program.arguments
        }
        for stored in self._program.stored:
            tensor = arguments.get(stored.path, self._stored[stored.path])
            values[stored.value] = tensor.clone() if stored.path in self._states else tensor
        with self._torch.inference_mode():
            self._run_nodes(self._program.document["nodes"], values)
            outputs = {
                name: self._argument(argument, values) for name, argument in self._program.outputs
            }
        for stored in self._program.stored:
            if stored.path in feeds:
                after = self._program.mutated.get(stored.path)
                outputs[stored.path] = (
                    values[stored.value] if after is None else self._argument(after, values)
                )
        return {name: array_from(self._torch, value) for name, value in outputs.items()}

    def _run_nodes(self, nodes: Sequence[Any], values: dict[str, Any]) -> None:
        for node in nodes:
            target = node["target"]
            if target.removeprefix("torch.ops.").startswith(_IGNORED):
                continue
            outputs = node["outputs"]
            if target.startswith(_HIGHER_ORDER):
                results = self._call_graphs(target.removeprefix(_HIGHER_ORDER), node, values)
            else:
                results = self._call(target, node["inputs"], values)
                if len(outputs) == 1:
                    results = (results,)
            for output, result in zip(outputs, results, strict=True):
                _bind(output, result, values)

    def _call(self, target: str, inputs: Sequence[Any], values: Mapping[str, Any]) -> Any:
        quantized = self._quantized.get(target.rpartition(".")[0])
        if quantized is not None:
            return quantized(
                **{item["name"]: self._argument(item["arg"], values) for item in inputs}
            )
        function = _PYTHON.get(target)
        if function is None:
            function = self._torch.ops
            for name in target.removeprefix("torch.ops.").split("."):
                function = getattr(function, name)
        positional, keywords = [], {}
        for item in inputs:
            value = self._argument(item["arg"], values)
            # Files of older torch do not say which are given by keyword: then all are.
            if item.get("kind") in (None, _KEYWORD) and target not in _PYTHON:
                keywords[item["name"]] = value
            else:
                positional.append(value)
        return function(*positional, **keywords)

    def _call_graphs(self, name: str, node: Any, values: Mapping[str, Any]) -> Sequence[Any]:
        """The results of a node whose first arguments are graphs."""
        arguments = [item["arg"] for item in node["inputs"]]
        rest = [self._argument(item, values) for item in arguments if "as_graph" not in item]
        graphs = [item["as_graph"]["graph"] for item in arguments if "as_graph" in item]
        match name:
            case "cond":
                predicate, operands = rest
                return self._run_graph(graphs[0 if bool(predicate) else 1], operands)
            case "while_loop":
                return self._loop(*graphs, *rest)
            case "scan" | "map_impl":
                state, sequences, captured = rest if name == "scan" else ([], *rest)
                return self._scan(graphs[0], state, sequences, captured)
        raise AssertionError(f"the importer took the higher-order operator {name}")

    def _loop(self, condition: Any, body: Any, state: Any, captured: Any) -> Sequence[Any]:
        while bool(self._run_graph(condition, [*state, *captured])[0]):
            state = self._run_graph(body, [*state, *captured])
        return [*state]

    def _scan(self, body: Any, state: Any, sequences: Any, captured: Any) -> Sequence[Any]:
        count, rows = len(state), []
        for items in zip(*sequences, strict=True):
            results = self._run_graph(body, [*state, *items, *captured])
            state = results[:count]
            rows.append(results[count:])
        return [*state, *(self._torch.stack(column) for column in zip(*rows, strict=True))]

    def _run_graph(self, graph: Any, actuals: Sequence[Any]) -> list[Any]:
        inner: dict[str, Any] = {}
        for formal, actual in zip(graph["inputs"], actuals, strict=True):
            _bind(formal, actual, inner)
        self._run_nodes(graph["nodes"], inner)
        return [self._argument(output, inner) for output in graph["outputs"]]

    def _argument(self, argument: Mapping[str, Any], values: Mapping[str, Any]) -> Any:
        ((kind, content),) = argument.items()
        match kind:
            case "as_none":
                return None
            case "as_tensor":
                return values[content["name"]]
            case "as_sym_int" | "as_sym_float" | "as_sym_bool" | "as_optional_tensor":
                return self._item(content, values)
            case "as_scalar_type":
                dtype = DTYPES[content]
                return getattr(self._torch, "float64" if self._wide and dtype in _FLOATS else dtype)
            case "as_device":
                return self._torch.device("cpu")
            case "as_layout":
                return self._torch.strided
            case "as_memory_format":
                return {
                    2: self._torch.channels_last, 3: self._torch.channels_last_3d,
                    4: self._torch.preserve_format,
                }.get(content, self._torch.contiguous_format)  # fmt: skip
        if isinstance(content, list):
            return [self._item(item, values) for item in content]
        return content if kind == "as_string" else number_of(content)

    def _item(self, item: Any, values: Mapping[str, Any]) -> Any:
        """An item of a list: a name, a number or nothing, or a list itself."""
        if isinstance(item, list):
            return [self._item(inner, values) for inner in item]
        if not isinstance(item, dict):
            return number_of(item)
        if "name" in item or "as_name" in item:
            return values[item["name"] if "name" in item else item["as_name"]]
        return self._argument(item, values)


def _moved(data: np.ndarray[Any, Any], random: np.random.Generator | None) -> np.ndarray[Any, Any]:
    return data if random is None or data.dtype.kind != "f" else perturb(data, random)


def _bind(output: Mapping[str, Any], result: Any, values: dict[str, Any]) -> None:
    """Give a node's result, or the items of one that is a list, the names of the graph."""
    ((_, content),) = output.items()
    if isinstance(content, list):
        for item, value in zip(content, result, strict=True):
            values[item.get("name", item.get("as_name"))] = value
    elif isinstance(content, dict):
        name = content.get("name", content.get("as_name"))
        if name is not None:
            values[name] = result
