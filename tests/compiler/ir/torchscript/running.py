"""Compiles TorchScript in this process with TVM's stock passes, and compares with torch."""

import io
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
import tvm
from tvm import relax

from compiler.codegen.tail_calls import without_tail_calls
from compiler.ir import import_torchscript
from compiler.ir.imported import Imported
from compiler.verify.reference.torch import flatten
from relaxd.contract.request import CompileRequest
from tests.compiler.quick_code import QUICK, register_lowering

torch.set_num_threads(1)
SIZES = (3, 1, 4, 7, 13)
_PASSES = ("LegalizeOps", "AnnotateTIROpPattern", "FoldConstant", "FuseOps", "FuseTIR")

Spec = tuple[str, str]
"""A dtype and the axes, as in `n,3`; `int64<10` draws indices below 10."""


def script(module: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.script(module.eval())


def trace(module: Any, *inputs: Any) -> Any:
    class Wrapped(torch.nn.Module):
        def forward(self, *args: Any) -> Any:
            return module(*args)

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        return torch.jit.trace(
            module.eval() if isinstance(module, torch.nn.Module) else Wrapped(),
            inputs,
            check_trace=False,
        )


def save_module(module: Any) -> bytes:
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.save(module, buffer)
    return buffer.getvalue()


def import_module(
    module: Any, inputs: Mapping[str, str] | None = None, **declared: Any
) -> Imported:
    return import_torchscript(
        save_module(module), CompileRequest.of(inputs=inputs or {}, **declared)
    )


class Machine:
    def __init__(self, imported: Imported) -> None:
        self.imported = imported
        with QUICK, tvm.transform.PassContext(opt_level=3):
            lowered = tvm.transform.Sequential(
                [getattr(relax.transform, name)() for name in _PASSES]
            )(self.imported.module)
            executable = relax.build(lowered, QUICK, tir_pipeline=register_lowering())
            self._machine = relax.VirtualMachine(without_tail_calls(executable), tvm.cpu())

    def __call__(self, **feeds: Any) -> dict[str, np.ndarray[Any, Any]]:
        arrays = [
            tvm.runtime.tensor(np.array(feeds[spec.name], order="C"))
            for spec in self.imported.inputs
        ]
        outputs = self._machine["main"](*arrays)
        return {
            spec.name: output.numpy()
            for spec, output in zip(self.imported.outputs, outputs, strict=True)
        }


class Compiled(Machine):
    def __init__(self, module: Any, inputs: Mapping[str, str], **declared: Any) -> None:
        super().__init__(import_module(module, inputs, **declared))


def draw(spec: Spec, size: int) -> torch.Tensor:
    kind, axes = spec
    shape = [eval(axis, {}, {"n": size}) for axis in axes.split(",") if axis]
    seed = torch.Generator().manual_seed(size + len(axes))
    dtype, _, below = kind.partition("<")
    if below:
        return torch.randint(0, int(below), shape, generator=seed)
    if "float" in dtype:
        return torch.randn(shape, generator=seed).to(getattr(torch, dtype))
    if dtype == "bool":
        return torch.rand(shape, generator=seed) > 0.5
    return torch.randint(0 if dtype.startswith("u") else -4, 5, shape, generator=seed).to(
        getattr(torch, dtype)
    )


def arguments(module: Any) -> list[str]:
    return [argument.name for argument in module._c._get_method("forward").schema.arguments[1:]]


def agree(got: Sequence[Any], wanted: Any, tolerance: float | None = None) -> None:
    expected = [
        value if isinstance(value, torch.Tensor) else torch.from_numpy(np.asarray(value))
        for _, value in flatten(wanted, "")
    ]
    assert len(got) == len(expected)
    for index, (have, want) in enumerate(zip(got, expected, strict=True)):
        name = str(want.dtype).removeprefix("torch.")
        assert (str(have.dtype), have.shape) == (name, tuple(want.shape)), index
        near = tolerance or (1e-4 if name in ("float32", "float64") else 2e-2)
        np.testing.assert_allclose(
            have.astype("f8"), want.detach().double().numpy(), near, near, err_msg=str(index)
        )


def run(module: Any, *values: torch.Tensor, **consts: Any) -> Any:
    """The results of torch; the values stay as they are."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return module(*(value.clone() for value in values), **consts)


def check(
    function: Callable[..., Any], *specs: Spec, sizes: Sequence[int] = SIZES, **declared: Any
) -> Compiled:
    """Trace (scripts stay as they are), compile once, compare at every size."""
    module = (
        function
        if isinstance(function, torch.jit.ScriptModule)
        else trace(function, *(draw(spec, 3) for spec in specs))
    )
    names = arguments(module)
    inputs = {
        name: f"{kind.partition('<')[0]}[{axes}]"
        for name, (kind, axes) in zip(names, specs, strict=False)
    }
    call = Compiled(module, inputs, **declared)
    for size in sizes:
        values = [draw(spec, size) for spec in specs]
        agree(
            list(
                call(
                    **{name: value.numpy() for name, value in zip(names, values, strict=False)}
                ).values()
            ),
            run(module, *values, **declared.get("consts", {})),
        )
    return call
