"""torch as the reference of a `.pt2` program: its graph as torch's own deserializer makes it, run
node by node.

torch.export.load unpickles what an archive says are sample inputs. Here torch gets the graph, whose
texts the reader has checked, and tensors that the reader has mapped: nothing is unpickled.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from compiler.ir.pt2.program import Program, read_document, read_program
from compiler.ir.torchscript.loading import load_torch
from compiler.verify.reference.perturbation import perturb


class ExportedProgram:
    """Runs a program with inputs by name; buffers start every call as the file has them, or as the
    feeds do.

    wide: parameters, buffers, inputs and the dtypes that nodes name are float64. perturbation: the
    seed by which parameters and buffers are moved (see `perturbation`), None for unmoved ones.
    """

    def __init__(self, model: str, wide: bool = False, perturbation: int | None = None) -> None:
        self._torch = load_torch()
        self._wide = wide
        self._program = read_program(Path(model))
        random = None if perturbation is None else np.random.default_rng(perturbation)
        self._state = {
            stored.path: self._stored(stored.data, random) for stored in self._program.stored
        }
        self._exported = self._deserialize(Path(model), self._program)
        self.name = f"torch {self._torch.__version__}" + (" in float64" if wide else "")

    def _deserialize(self, model: Path, program: Program) -> Any:
        from torch._export.serde import schema, serialize

        document = serialize._bytes_to_dataclass(schema.ExportedProgram, read_document(model))
        parameters: dict[str, Any] = {}
        constants: dict[str, Any] = {}
        for stored in program.stored:
            (constants if stored.constant else parameters)[stored.path] = self._tensor(stored.data)
        deserializer = serialize.ExportedProgramDeserializer(None)
        return deserializer.deserialize(document, parameters, constants, None)

    def _stored(self, data: np.ndarray[Any, Any], random: np.random.Generator | None) -> Any:
        moves = random is not None and data.dtype.kind == "f"
        return self._widen(self._tensor(perturb(data, random) if moves and random else data))

    def _widen(self, tensor: Any) -> Any:
        return tensor.double() if self._wide and tensor.is_floating_point() else tensor

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Outputs by name; as in compiler.verify.reference.onnx.Engine."""
        arguments = {name: self._widen(self._tensor(array)) for name, array in feeds.items()}
        state = {
            path: arguments.get(path, tensor).clone() if path in self._buffers() else tensor
            for path, tensor in self._state.items()
        }
        with self._torch.inference_mode():
            flat = self._interpreter().run(*self._in_order(arguments, state))
        return {name: self._array(value) for name, value in self._outputs(flat, feeds, state)}

    def _buffers(self) -> set[str]:
        return {str(path) for path in self._exported.graph_signature.buffers}

    def _interpreter(self) -> Any:
        torch, wide = self._torch, self._wide
        floats = (torch.float32, torch.float16, torch.bfloat16)

        def widen(item: Any) -> Any:
            return torch.float64 if wide and type(item) is torch.dtype and item in floats else item

        class Interpreter(torch.fx.Interpreter):  # type: ignore[misc, name-defined]
            def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
                """The node's function, dtypes of floats widened."""
                args = tuple(map(widen, args))
                kwargs = {key: widen(item) for key, item in kwargs.items()}
                return super().call_function(target, args, kwargs)

        return Interpreter(self._exported.graph_module)

    def _in_order(self, arguments: Mapping[str, Any], state: Mapping[str, Any]) -> list[Any]:
        """The values of the graph's placeholders."""
        names = iter([argument.name for argument in self._program.arguments])
        values = []
        for spec in self._exported.graph_signature.input_specs:
            if spec.target is not None:
                values.append(state[spec.target])
            elif hasattr(spec.arg, "value"):
                values.append(spec.arg.value)
            else:
                values.append(arguments[next(names)])
        return values

    def _outputs(
        self, flat: Any, feeds: Mapping[str, Any], state: Mapping[str, Any]
    ) -> list[tuple[str, Any]]:
        from torch.export.graph_signature import OutputKind

        specs = self._exported.graph_signature.output_specs
        pairs = list(zip(specs, flat, strict=True))
        results = [
            value
            for spec, value in pairs
            if spec.kind is OutputKind.USER_OUTPUT and value is not None
        ]
        after = {
            **state,
            **{
                spec.target: value
                for spec, value in pairs
                if spec.kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION)
            },
        }
        names = [name for name, _ in self._program.outputs]
        named = list(zip(names, results, strict=True))
        return named + [(path, after[path]) for path in self._state if path in feeds]

    def _tensor(self, array: np.ndarray[Any, Any]) -> Any:
        if array.dtype == ml_dtypes.bfloat16:
            bits = np.ascontiguousarray(array).view(np.int16).copy()
            return self._torch.from_numpy(bits).view(self._torch.bfloat16)
        return self._torch.from_numpy(np.array(array))

    def _array(self, value: Any) -> Any:
        if not isinstance(value, self._torch.Tensor):
            return np.asarray(value)
        dense = value.detach().contiguous()
        return (
            dense.view(self._torch.int16).numpy().view(ml_dtypes.bfloat16)
            if dense.dtype == self._torch.bfloat16
            else dense.numpy()
        )
