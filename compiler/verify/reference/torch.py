"""torch as the reference of a TorchScript model: the saved module itself, neither frozen nor
inlined.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from compiler.ir.aten.torch_package import load_torch
from compiler.ir.torchscript import loading
from compiler.ir.torchscript.arguments import (
    Argument,
    arguments_of,
    bare,
    names_in,
    written_attributes,
)
from compiler.verify.reference.perturbation import perturb
from compiler.verify.reference.torch_tensors import array_from, tensor_from


class TorchScript:
    """Runs forward with inputs by name; a module that keeps state is loaded anew for every call, as
    the library starts anew.

    wide: parameters, buffers and inputs are float64. perturbation: the seed by which parameters and
    buffers are moved (see `perturbation`), None for unmoved ones.
    """

    def __init__(self, model: str, wide: bool = False, perturbation: int | None = None) -> None:
        self._torch = load_torch()
        self._path, self._wide, self._perturbation = model, wide, perturbation
        program = loading.load(Path(model))
        self._arguments, self._states = arguments_of(program), written_attributes(program)
        self._module = self._load()
        self.name = f"torch {self._torch.__version__}" + (" in float64" if wide else "")

    def _load(self) -> Any:
        module = self._torch.jit.load(self._path, map_location="cpu")
        if self._perturbation is not None:
            self._perturb(module, np.random.default_rng(self._perturbation))
        module = module.double() if self._wide else module
        return module.eval() if hasattr(module, "training") else module

    def _perturb(self, module: Any, random: np.random.Generator) -> None:
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point() and tensor.dtype != self._torch.bfloat16:
                moved = perturb(tensor.detach().numpy(), random)
                tensor.data.copy_(self._torch.from_numpy(moved))

    def run(self, feeds: Mapping[str, Any], consts: Mapping[str, Any]) -> Mapping[str, Any]:
        """Outputs by name; as in compiler.verify.reference.onnx.Engine."""
        if self._states:
            self._module = self._load()
        tensors = {name: tensor_from(self._torch, array) for name, array in feeds.items()}
        if self._wide:
            tensors = {
                name: tensor.double() if tensor.is_floating_point() else tensor
                for name, tensor in tensors.items()
            }
        values = {**tensors, **consts}
        for path in self._states:
            if path in values:
                self._set(path, values[path])
        arguments = {
            argument.name: self._value(argument, values)
            for argument in self._arguments
            if self._has(argument, values)
        }
        with self._torch.inference_mode():
            items = flatten(self._module(**arguments), "")
        named = {
            f"output{suffix}" if suffix[:1] in ("", "_") else suffix: value
            for suffix, value in items
        }
        named.update({path: self._get(path) for path in self._states if path in feeds})
        return {name: array_from(self._torch, value) for name, value in named.items()}

    def _has(self, argument: Argument, values: Mapping[str, Any]) -> bool:
        return argument.name in values or bool(self._items(argument, values))

    @staticmethod
    def _items(argument: Argument, values: Mapping[str, Any]) -> list[Any]:
        """The tensors of a tuple or list argument."""
        names = (
            names_in(argument)
            if bare(argument).kind() == "TupleType"
            else [f"{argument.name}_{index}" for index in range(len(values))]
        )
        return [values[name] for name in names if name in values]

    def _value(self, argument: Argument, values: Mapping[str, Any]) -> Any:
        if argument.name not in values:
            items = self._items(argument, values)
            return tuple(items) if bare(argument).kind() == "TupleType" else items
        value = values[argument.name]
        if bare(argument).kind() in ("IntType", "FloatType", "BoolType") and isinstance(
            value, self._torch.Tensor
        ):
            return value.item()
        return float(value) if bare(argument).kind() == "FloatType" else value

    def _owner(self, path: str) -> tuple[Any, str]:
        *parents, name = path.split(".")
        owner = self._module._c
        for part in parents:
            owner = owner.getattr(part)
        return owner, name

    def _get(self, path: str) -> Any:
        owner, name = self._owner(path)
        return owner.getattr(name)

    def _set(self, path: str, value: Any) -> None:
        owner, name = self._owner(path)
        old = owner.getattr(name)
        owner.setattr(
            name,
            value
            if isinstance(old, self._torch.Tensor) or not isinstance(value, self._torch.Tensor)
            else value.item(),
        )


def flatten(value: Any, suffix: str) -> list[tuple[str, Any]]:
    """The tensors and numbers in what forward returns, each with the suffix of its name: `_0` in a
    tuple or list, the key in a dict.
    """
    if isinstance(value, dict):
        items = [(f"{suffix}_{key}" if suffix else str(key), item) for key, item in value.items()]
    elif isinstance(value, (tuple, list)):
        items = [(f"{suffix}_{index}", item) for index, item in enumerate(value)]
    else:
        return [] if value is None else [(suffix, value)]
    return [pair for name, item in items for pair in flatten(item, name)]
