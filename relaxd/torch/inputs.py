"""The inputs of a module: their names, their axes in dims, and tensors of any admitted sizes."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count
from typing import Any

from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest
from relaxd.errors import DeclarationError, suggest
from relaxd.torch.errors import load_torch

Sizes = Mapping[str, int]
_SMALLEST = 3
"""Of sizes that are chosen here: torch takes 0 and 1 for constants, of multiples 0 and 1 times the
multiple, and 2 divides too much."""


@dataclass(frozen=True)
class Inputs:
    """The arguments of a call, as (args, kwargs) in torch's tree.

    specs: of each tensor in the order of the tree, under the name that torch gives it; dims: of
    all names in their axes; values: an example of each leaf, None for a tensor that is to be made.
    """

    module: Any
    tree: Any
    values: tuple[Any, ...]
    specs: tuple[TensorSpec | None, ...]
    dims: Mapping[str, Dim]

    @property
    def tensors(self) -> tuple[TensorSpec, ...]:
        """The specs of tensors alone."""
        return tuple(spec for spec in self.specs if spec is not None)

    @property
    def axes(self) -> dict[str, tuple[str, ...]]:
        """The axes of each tensor as texts, by its name."""
        return {spec.name: tuple(axis.text for axis in spec.shape) for spec in self.tensors}

    def call(self, sizes: Sizes) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments of the given sizes: of example tensors, rows repeated or left out."""
        leaves = [
            value if spec is None else _resize(spec, value, sizes)
            for spec, value in zip(self.specs, self.values, strict=True)
        ]
        args, kwargs = _pytree().tree_unflatten(leaves, self.tree)
        return args, kwargs

    def shapes(self, axis_of: Any) -> dict[str, Any]:
        """torch.export's `dynamic_shapes`: of each dynamic axis what `axis_of` makes of it."""
        leaves = [
            None
            if spec is None
            else {
                index: axis_of(axis)
                for index, axis in enumerate(spec.shape)
                if any(not self.dims[name].fixed for name in axis.dims)
            }
            for spec in self.specs
        ]
        args, kwargs = _pytree().tree_unflatten(leaves, self.tree)
        bound = inspect.signature(self.module.forward).bind(*args, **kwargs)
        shapes = dict(bound.arguments)
        for parameter in bound.signature.parameters.values():
            if parameter.kind is parameter.VAR_KEYWORD and parameter.name in shapes:
                shapes |= shapes.pop(parameter.name)
        return shapes


def read_inputs(module: Any, example: Any, request: CompileRequest) -> Inputs:
    """The inputs that example and declarations describe together; raises DeclarationError.

    example: a tensor, a tuple of arguments, a dict of arguments by name, or None where every input
    is declared.
    """
    declared = {spec.name: spec for spec in request.inputs}
    args, kwargs = _arguments(module, example, declared)
    leaves, tree = _pytree().tree_flatten_with_path((args, kwargs))
    names = [_name_of(module, path) for path, _ in leaves]
    _require_known(declared, names)
    dims = {dim.name: dim for dim in request.dims}
    specs = tuple(
        _spec(name, value, declared.get(name), dims)
        for name, (_, value) in zip(names, leaves, strict=True)
    )
    used = {name for spec in specs if spec for axis in spec.shape for name in axis.dims}
    for name in dims.keys() - used:
        raise DeclarationError(
            f"no input has a dim {name!r}",
            field=f"dims.{name}",
            hint=suggest(
                name,
                used,
                f'name the axis, as in --input "{names[0] if names else "x"}=float32[{name},8]"',
            ),
        )
    values = tuple(None if isinstance(value, TensorSpec) else value for _, value in leaves)
    return Inputs(
        module, tree, values, specs, {name: dims.get(name, Dim(name)) for name in sorted(used)}
    )


def choose_sizes(inputs: Inputs) -> dict[str, int]:
    """A size for each dim to trace with: the example's unless torch takes it for a constant, else
    one that no other dim has.
    """
    sizes: dict[str, int] = {}
    for spec, value in zip(inputs.specs, inputs.values, strict=True):
        if spec is None or value is None:
            continue
        for axis, size in zip(spec.shape, value.shape, strict=True):
            dim = inputs.dims.get(axis.symbol or "")
            if dim is not None and size >= 2 * dim.multiple and dim.admits(size):
                sizes.setdefault(dim.name, size)
    for dim in inputs.dims.values():
        if dim.name not in sizes:
            sizes[dim.name] = _free_size(dim, set(sizes.values()))
    return sizes


def points_to_check(inputs: Inputs, chosen: Sizes) -> list[dict[str, int]]:
    """Sizes at which an exported program is compared with its module: those it was traced with,
    the smallest of all dims, larger ones, and some of each.
    """
    low = {name: dim.lowest for name, dim in inputs.dims.items()}
    low = {name: size or inputs.dims[name].multiple for name, size in low.items()}
    high = {name: _above(dim, chosen[name]) for name, dim in inputs.dims.items()}
    mixed = {name: (low, high)[index % 2][name] for index, name in enumerate(low)}
    points: list[dict[str, int]] = []
    for point in (dict(chosen), low, high, mixed):
        if point not in points:
            points.append(point)
    return points


def _above(dim: Dim, size: int) -> int:
    wanted = (2 * size + 1) // dim.multiple * dim.multiple
    return wanted if dim.highest is None else min(wanted, dim.highest)


def _free_size(dim: Dim, taken: set[int]) -> int:
    if dim.fixed:
        return dim.lowest
    if dim.opt is not None and dim.opt >= 2 * dim.multiple:
        return dim.opt
    first = max(dim.lowest, -(-_SMALLEST // dim.multiple) * dim.multiple, 2 * dim.multiple)
    most = dim.highest
    for size in count(first, dim.multiple):
        if most is not None and size > most:
            return max(most, dim.lowest)
        if size not in taken:
            return size
    raise AssertionError


def _pytree() -> Any:
    load_torch()
    from torch.utils import _pytree

    return _pytree


def _arguments(
    module: Any, example: Any, declared: Mapping[str, TensorSpec]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """args and kwargs; where there is no example, specs stand for the tensors."""
    if isinstance(example, Mapping):
        return (), dict(example)
    if isinstance(example, (tuple, list)):
        return tuple(example), {}
    if example is not None:
        return (example,), {}
    parameters = inspect.signature(module.forward).parameters.values()
    lacking = [
        parameter.name
        for parameter in parameters
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and parameter.name not in declared
    ]
    if lacking or not declared:
        name = (lacking or ["x"])[0]
        raise DeclarationError(
            f"there is no example of the input {name!r}, and it is not declared",
            field=f"inputs.{name}",
            hint=f'declare it, as in --input "{name}=float32[batch,8]" --dim batch=1:64, or let '
            "the function return (module, example inputs)",
        )
    args = []
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY or parameter.name not in declared:
            break
        args.append(declared[parameter.name])
    return tuple(args), {name: spec for name, spec in declared.items() if spec not in args}


def _name_of(module: Any, path: Any) -> str:
    """torch's name of an argument's tensor: `x`, `extra_b` of `extra["b"]`, `rest_0` of `*rest`."""
    where, *keys = path
    if where.idx == 1:
        return "_".join(map(_key_text, keys))
    index = keys[0].idx
    for position, parameter in enumerate(inspect.signature(module.forward).parameters.values()):
        if parameter.kind is parameter.VAR_POSITIONAL:
            return "_".join([parameter.name, str(index - position), *map(_key_text, keys[1:])])
        if position == index:
            return "_".join([parameter.name, *map(_key_text, keys[1:])])
    raise DeclarationError(
        f"the example has {index + 1} arguments, forward takes fewer",
        field="example",
        hint="give the arguments of forward in their order, or by name in a dict",
    )


def _key_text(key: Any) -> str:
    for field in ("key", "idx", "name"):
        if hasattr(key, field):
            return str(getattr(key, field))
    return str(key)


def _require_known(declared: Mapping[str, TensorSpec], names: list[str]) -> None:
    for name in declared.keys() - set(names):
        raise DeclarationError(
            f"the module's example has no input {name!r}",
            field=f"inputs.{name}",
            hint=suggest(name, names, f"its inputs are {', '.join(names)}"),
        )


def _spec(
    name: str, value: Any, declared: TensorSpec | None, dims: Mapping[str, Dim]
) -> TensorSpec | None:
    """The spec of one leaf; None for a value that is no tensor, which exporting fixes."""
    if isinstance(value, TensorSpec):
        return value
    if not load_torch().is_tensor(value):
        if declared is not None:
            raise DeclarationError(
                f"input {name!r} is {value!r} in the example, and no tensor: exporting fixes it",
                field=f"inputs.{name}",
                hint="give the module a tensor, or leave out the declaration",
            )
        return None
    dtype, shape = str(value.dtype).removeprefix("torch."), tuple(value.shape)
    if declared is None:
        axes = [
            Axis.of_dim(dim) if (dim := f"{name}_{index}") in dims else Axis(str(size))
            for index, size in enumerate(shape)
        ]
        return TensorSpec(name, dtype, tuple(axes))
    if declared.dtype != dtype or len(declared.shape) != len(shape):
        raise DeclarationError(
            f"input {name!r} is declared as {declared.text}, its example is {dtype}{list(shape)}",
            field=f"inputs.{name}",
        )
    for index, (axis, size) in enumerate(zip(declared.shape, shape, strict=True)):
        if axis.size is not None and axis.size != size:
            raise DeclarationError(
                f"axis {index} of input {name!r} is declared as {axis.size}, its example has "
                f"{size}",
                field=f"inputs.{name}",
            )
    return declared


def _resize(spec: TensorSpec, value: Any, sizes: Sizes) -> Any:
    shape = [axis.evaluate(sizes) for axis in spec.shape]
    if value is None:
        return _make(spec.dtype, shape)
    torch = load_torch()
    for axis, size in enumerate(shape):
        if value.shape[axis] != size:
            rows = torch.arange(size) % max(value.shape[axis], 1)
            value = value.index_select(axis, rows.to(value.device))
    return value


def _make(dtype: str, shape: list[int]) -> Any:
    """Seeded normal numbers; integers and flags of 0 and 1, which fit ids, types and masks."""
    torch = load_torch()
    kind = getattr(torch, dtype, None)
    if kind is None:
        raise DeclarationError(f"torch has no dtype {dtype!r}", field="inputs")
    if kind.is_floating_point:
        return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(kind)
    if len(shape) < 2:
        return torch.ones(shape, dtype=kind)
    along = torch.arange(shape[-1]) % 2
    return (along if dtype == "bool" else 1 - along).expand(shape).to(kind).contiguous()
