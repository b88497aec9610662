"""The part of a model that computes on strings, and its share of the library's interface."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from relaxd.contract.bundle.strings import Steps, Strings, string_spec
from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.tensors import TEXT, TensorSpec
from relaxd.contract.request import CompileRequest
from relaxd.loader.strings.program import Program

_SIZES = ((5, 7, 11, 13, 17, 19), (23, 29, 31, 37, 41, 43))
"""Sizes of dims at which no two axes are alike by chance."""


@dataclass(frozen=True)
class StringPart:
    """steps: around the library; inputs, outputs: the caller's, in the model's order, of which the
    inputs of strings are described.

    encoded: inputs of the library that the steps make; decoded: outputs of it that they read;
    examples: of what some of `encoded` hold.
    """

    steps: Steps
    inputs: tuple[str | TensorSpec, ...]
    outputs: tuple[str, ...]
    encoded: tuple[str, ...]
    decoded: tuple[str, ...]
    examples: Mapping[str, np.ndarray[Any, Any]]
    packages: tuple[str, ...] = ()

    def program(self) -> Program:
        """The steps, for inputs and outputs by name; raises LoadContractError where a package that
        they need is not installed.
        """
        inputs = tuple(
            TensorSpec(one, "float32", ()) if isinstance(one, str) else one for one in self.inputs
        )
        outputs = tuple(TensorSpec(name, "float32", ()) for name in self.outputs)
        return Program(Strings(inputs, outputs, self.encoded, self.decoded), self.steps)

    def describe(self, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]) -> Strings:
        """The interface, by the library's."""
        own = {spec.name: spec for spec in inputs}
        bare = Strings((), (), self.encoded, self.decoded, self.packages)
        return replace(
            bare,
            inputs=tuple(own[one] if isinstance(one, str) else one for one in self.inputs),
            outputs=self._outputs(Program(bare, Steps(after=self.steps.after)), outputs),
        )

    def _outputs(self, program: Program, outputs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """The caller's outputs, by running the steps at two sizes of each dim."""
        own = {spec.name: spec for spec in outputs}
        axes = {axis for name in self.decoded for axis in own[name].shape}
        dims = sorted({dim for axis in axes for dim in axis.dims})
        sizes = [dict(zip(dims, primes, strict=False)) for primes in _SIZES]
        runs = [program.run_after(_zeros(self.decoded, own, each)) for each in sizes]
        return tuple(
            own[name]
            if name in own
            else string_spec(
                name,
                tuple(
                    _axis(f"{name}_{index}", [run[name].shape[index] for run in runs], axes, sizes)
                    for index in range(runs[0][name].ndim)
                ),
            )
            for name in self.outputs
        )


def _zeros(
    names: Sequence[str], specs: Mapping[str, TensorSpec], sizes: Mapping[str, int]
) -> dict[str, np.ndarray[Any, Any]]:
    return {
        name: np.zeros([axis.evaluate(sizes) for axis in specs[name].shape], np.int64)
        for name in names
    }


def _axis(
    name: str, extents: Sequence[int], axes: Iterable[Axis], sizes: Sequence[Mapping[str, int]]
) -> Axis:
    """The axis among those of the library's outputs that has these extents, or the number that both
    are.
    """
    for axis in sorted(axes, key=str):
        if [axis.evaluate(each) for each in sizes] == [*extents]:
            return axis
    return Axis(str(extents[0])) if len({*extents}) == 1 else Axis.of_dim(name)


def describe_strings(report: dict[str, Any], part: StringPart) -> dict[str, Any]:
    """The inspection of the library's part of a model, with a row for each input and output of
    strings, and the steps between them and the library.
    """
    inputs = [one for one in part.inputs if isinstance(one, TensorSpec)]
    texts = {name for step in part.steps.after for name in step.outputs}
    rows = [{"name": one.name, "side": "input", "type": one.text} for one in inputs]
    rows += [
        {"name": name, "side": "output", "type": TEXT} for name in part.outputs if name in texts
    ]
    steps = (step.op for step in (*part.steps.before, *part.steps.after))
    return report | {
        "strings": rows,
        "steps on strings": ", ".join(dict.fromkeys(op for op in steps if op != "constant")),
    }


def without_strings(request: CompileRequest) -> CompileRequest:
    """The request for the library, which has no inputs of strings."""
    inputs = tuple(spec for spec in request.inputs if spec.dtype != TEXT)
    return request if len(inputs) == len(request.inputs) else replace(request, inputs=inputs)
