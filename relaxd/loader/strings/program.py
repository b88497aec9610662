"""Runs the steps on strings of a bundle."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxd.contract.bundle.strings import Step, Steps, Strings
from relaxd.contract.dims.tensors import TEXT, TensorSpec
from relaxd.contract.documents import manifest_error
from relaxd.errors import InputError, suggest
from relaxd.loader.strings import (  # noqa: F401  fills the registry
    arrays,
    encoding,
    ngrams,
    tables,
    text,
    wordpiece,
)
from relaxd.loader.strings.registry import OPERATORS, Array, Run


class Program:
    """The steps before and after a library; any thread may run them."""

    def __init__(self, strings: Strings, steps: Steps) -> None:
        """Raises BundleError for steps that this release does not know."""
        self.strings = strings
        self._before = [(step, _make(step)) for step in steps.before]
        self._after = [(step, _make(step)) for step in steps.after]
        self._inputs = {spec.name: spec for spec in strings.inputs}
        self._texts = [spec for spec in strings.inputs if spec.dtype == TEXT]

    def encode(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        """The inputs of the library. Where no string is given, what the steps would make may be.

        Raises InputError for strings that the model does not take.
        """
        named = self._named(inputs)
        if not any(spec.name in named for spec in self._texts):
            return named
        values: dict[str, Any] = {}
        for spec in self._texts:
            if spec.name not in named:
                raise InputError(f"input {spec.name!r} is missing", input=spec.name)
            values[spec.name] = _strings(named.pop(spec.name), spec)
        _run(self._before, values)
        return named | {name: values[name] for name in self.strings.encoded}

    def decode(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The caller's outputs, by those of the library."""
        values = self.run_after(outputs)
        return {spec.name: values[spec.name] for spec in self.strings.outputs}

    def run_after(self, outputs: Mapping[str, Array]) -> dict[str, Array]:
        """The library's outputs, and all that the steps after it make of them."""
        values: dict[str, Any] = dict(outputs)
        _run(self._after, values)
        return values

    def _named(self, inputs: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
        if isinstance(inputs, Mapping):
            known = {*self._inputs, *self.strings.encoded}
            for name in inputs:
                if name not in known:
                    raise InputError(
                        f"the model has no input {name!r}",
                        hint=suggest(name, known, f"its inputs: {', '.join(self._inputs)}"),
                        input=name,
                    )
            return dict(inputs)
        if len(inputs) != len(self._inputs):
            raise InputError(
                f"{len(inputs)} inputs are given in a list, the model has {len(self._inputs)}",
                hint=f"its inputs: {', '.join(self._inputs)}",
            )
        return dict(zip(self._inputs, inputs, strict=True))


def _make(step: Step) -> Run:
    make = OPERATORS.get(step.op)
    if make is None:
        raise manifest_error(f"it has a step {step.op[:40]!r}, which this relaxd does not know")
    try:
        return make(step.attributes)
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise manifest_error(f"a step {step.op!r} cannot be read: {str(error)[:200]}") from error


def _run(steps: Sequence[tuple[Step, Run]], values: dict[str, Any]) -> None:
    for step, run in steps:
        try:
            results = run(*(values[name] for name in step.inputs))
            values.update(zip(step.outputs, results, strict=True))
        except (ValueError, IndexError, KeyError, TypeError) as error:
            raise InputError(
                f"the step {step.op!r} on {', '.join(step.inputs)} failed: {str(error)[:200]}"
            ) from error


def _strings(value: Any, spec: TensorSpec) -> Array:
    """The input as an array of `str`; raises InputError."""
    array = np.asarray(value)
    if array.dtype.kind in "UT" or not array.size:
        array = array.astype(object)
    elements: list[Any] = array.reshape(-1).tolist()
    if not all(isinstance(one, str) for one in elements):
        raise InputError(
            f"input {spec.name!r} is {array.dtype}, the model takes strings",
            hint=f"give an array of str of the shape {spec.text.removeprefix(TEXT)}",
            input=spec.name,
        )
    sizes = [axis.size for axis in spec.shape]
    if array.ndim != len(sizes) or any(
        want is not None and want != size for want, size in zip(sizes, array.shape, strict=True)
    ):
        raise InputError(
            f"input {spec.name!r} has the shape {list(array.shape)}, the model takes {spec.text}",
            input=spec.name,
        )
    try:
        if b"\0" in "".join(elements).encode():
            raise InputError(f"a string of input {spec.name!r} holds a NUL", input=spec.name)
    except UnicodeEncodeError as error:
        raise InputError(f"input {spec.name!r} is no text: {error}", input=spec.name) from error
    return array
