"""One TFLite operator as its handler sees it: tensors, options, constants, and what it writes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from onnx import helper

from compiler.errors import ImportFailed
from compiler.ir.tflite.file import Operator, Quantization, Tensor
from compiler.ir.tflite.states import States
from compiler.ir.tflite.writer import Writer

Array = np.ndarray[Any, Any]
SMALL_INTEGERS = ("int8", "uint8", "int16")
"""What activations are quantized to."""
LARGEST = (1 << 63) - 1
"""Stands for the end of an axis."""


@dataclass
class Node:
    """inputs: tensors, None for those that are left out; names: of their values in the graph;
    outputs: tensors; constants: elements of values that are known, by name; variables: names of
    states, by the position of the input that is one.
    """

    operator: Operator
    label: str
    inputs: tuple[Tensor | None, ...]
    names: tuple[str, ...]
    outputs: tuple[Tensor, ...]
    constants: dict[str, Array]
    writer: Writer
    states: States
    variables: Mapping[int, str]

    # -- what the file says
    # ----------------------------------------------------------------------------------------------

    def fail(self, message: str, *, reason: str = "invalid_node", hint: str | None = None) -> Any:
        """Raise ImportFailed naming this operator."""
        raise ImportFailed(
            message, reason=reason, node=self.label, op=self.operator.name, hint=hint
        )

    def option(self, name: str) -> Any:
        """An option, by the name that the schema table has."""
        return self.operator.options[name]

    def tensor(self, index: int) -> Tensor:
        """A required input as the file describes it."""
        tensor = self.inputs[index] if index < len(self.inputs) else None
        if tensor is None:
            self.fail(f"input {index} is required", reason="input")
        assert tensor is not None
        return tensor

    def x(self, index: int = 0) -> str:
        """The name of a required input's value."""
        self.tensor(index)
        return self.names[index]

    def has(self, index: int) -> bool:
        """True if the optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    @property
    def output(self) -> Tensor:
        """The first output as the file describes it."""
        if not self.outputs:
            self.fail("it has no output", reason="output")
        return self.outputs[0]

    def rank(self, index: int = 0) -> int:
        """The number of axes of an input."""
        return len(self.tensor(index).shape)

    def require_rank(self, rank: int, index: int = 0) -> None:
        """Fail for an input of another rank."""
        if self.rank(index) != rank:
            self.fail(
                f"input {index} has {self.rank(index)} axes, {self.operator.name} takes {rank}",
                reason="rank",
            )

    def axis(self, value: int, rank: int) -> int:
        """An axis counted from 0; fails for one that is none."""
        if not -rank <= value < rank:
            self.fail(f"axis {value} of a tensor of {rank} axes", reason="axis")
        return value % rank

    def find_constant(self, index: int) -> Array | None:
        """Return the elements of an input that is constant, None for others."""
        return self.constants.get(self.x(index))

    def constant(self, index: int, what: str) -> Array:
        """The elements of an input that has to be constant."""
        data = self.find_constant(index)
        if data is None:
            self.fail(
                f"{what} is computed at run time, which is not supported", reason="data_dependent"
            )
        assert data is not None
        return data

    def integer(self, index: int, what: str) -> int:
        """The only element of a constant."""
        data = self.constant(index, what)
        if data.size != 1:
            self.fail(f"{what} has {data.size} elements, it must have one", reason="shape")
        return int(data.reshape(()))

    def variable(self, index: int) -> str:
        """The name of the state that an input is; fails for another tensor."""
        self.tensor(index)
        if index not in self.variables:
            self.fail(f"input {index} is no variable", reason="state")
        return self.variables[index]

    # -- quantization
    # ----------------------------------------------------------------------------------------------

    def is_quantized(self, index: int = 0) -> bool:
        """True if an input's integers stand for reals."""
        tensor = self.tensor(index)
        return tensor.dtype in SMALL_INTEGERS and tensor.quantization is not None

    def grid(self, tensor: Tensor) -> Quantization:
        """The scale and zero point of a quantized tensor."""
        if tensor.quantization is None or (tensor.quantization.scale <= 0).any():
            self.fail(f"{tensor.name!r} has no scale", reason="quantization")
        assert tensor.quantization is not None
        return tensor.quantization

    def scalar_grid(self, tensor: Tensor) -> tuple[np.float32, int]:
        """The one scale and the one zero point of a quantized tensor."""
        grid = self.grid(tensor)
        if not grid.by_tensor:
            self.fail(f"{tensor.name!r} has {grid.scale.size} scales, not one", reason="scales")
        return np.float32(grid.scale[0]), int(grid.zero[0])

    def require_bytes(self, *indices: int) -> None:
        """Fail for a quantized input that is not of 8 bits: its arithmetic is another one."""
        for index in indices:
            if self.tensor(index).dtype not in ("int8", "uint8"):
                self.fail(
                    f"{self.operator.name} on quantized {self.tensor(index).dtype} is not "
                    "supported",
                    reason="unsupported_dtype",
                    hint="quantize activations to int8",
                )

    # -- writing
    # ----------------------------------------------------------------------------------------------

    def put(self, operator: str, *inputs: str, outputs: int = 1, **attributes: Any) -> Any:
        """Add an ONNX node; gives the name of its output, a list of names for several."""
        return self.writer.put(operator, *inputs, outputs=outputs, **attributes)

    def const(self, value: Any, dtype: str | None = None) -> str:
        """Add a constant."""
        return self.writer.constant(value, dtype)

    def cast(self, x: str, dtype: str) -> str:
        """Convert elements."""
        return str(self.put("Cast", x, to=element_type(dtype)))

    def fold(self, data: Array) -> str:
        """Add a constant that later operators know."""
        name = self.writer.constant(data)
        self.constants[name] = data
        return name

    def ints(self, index: int, dtype: str = "int64") -> str:
        """An input of integers in another type, as ONNX takes lengths, axes and indices."""
        data = self.find_constant(index)
        if data is not None:
            return self.const(data.astype(dtype))
        return (
            self.x(index) if self.tensor(index).dtype == dtype else self.cast(self.x(index), dtype)
        )

    def transpose(self, x: str, *order: int) -> str:
        """Reorder axes."""
        return str(self.put("Transpose", x, perm=list(order)))

    def to_channels_first(self, x: str) -> str:
        """[N, H, W, C] as [N, C, H, W]."""
        return self.transpose(x, 0, 3, 1, 2)

    def to_channels_last(self, x: str) -> str:
        """[N, C, H, W] as [N, H, W, C]."""
        return self.transpose(x, 0, 2, 3, 1)

    def activate(self, x: str, dtype: str = "float32") -> str:
        """Apply the fused activation to reals."""
        match self.option("activation"):
            case 0:
                return x
            case 1:
                return str(self.put("Relu", x))
            case 2:
                return self.clip(x, -1, 1, dtype)
            case 3:
                return self.clip(x, 0, 6, dtype)
            case 4:
                return str(self.put("Tanh", x))
        return self.refuse_activation()

    def refuse_activation(self) -> NoReturn:
        """Fail for a fused activation that no kernel has."""
        self.fail(
            f"the fused activation {self.option('activation')} is not supported",
            reason="unsupported_activation",
        )
        raise AssertionError

    def clip(self, x: str, low: float, high: float, dtype: str = "float32") -> str:
        """Keep within a range."""
        return str(self.put("Clip", x, self.const(low, dtype), self.const(high, dtype)))


def element_type(dtype: str) -> int:
    """ONNX's number of a dtype."""
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
