"""From a module to machine code: what fails, and with which error."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import targets
from compiler.bundle import weights
from compiler.bundle.weights import Written
from compiler.codegen import generate
from compiler.errors import CodegenError, PassError, is_out_of_memory
from compiler.passes import manager
from compiler.passes.framework.base import FromTVM, ModulePass, Pass, Phase
from relaxd.contract.bundle.manifest import FileEntry

HOST = targets.resolve("native")


def module_with(*constants: np.ndarray[Any, Any]) -> tvm.IRModule:
    """main(x[n, 16]) = (x + c0 + c1 ...,)."""
    x = relax.Var("x", relax.TensorType((tvm.tirx.Var("n", "int64"), 16), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            value = x
            for constant in constants:
                value = builder.emit(relax.op.add(value, relax.const(constant)))
            result = builder.emit_output(relax.Tuple([value]))
        builder.emit_func_output(result)
    return builder.get()


def rows(count: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).random((count, 1, 16), np.float32)


@tvm.transform.module_pass(opt_level=0, name="Broken")
def broken(module: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
    raise ValueError("no such shape")


@dataclass(frozen=True)
class Wrapping(ModulePass):
    """A pass of ours that runs one of TVM's inside."""

    inner: tvm.transform.Pass | None
    name = "wrapping"
    phase = Phase.GRAPH

    def apply(self, module: tvm.IRModule) -> tvm.IRModule:
        module = relax.transform.ToNonDataflow()(module)
        if self.inner is None:
            raise ValueError("no kernel")
        return self.inner(module)


@pytest.mark.parametrize(
    ("step", "message", "details"),
    [
        (FromTVM(Phase.PACK, broken), "pass Broken: .*no such shape", {}),
        (Wrapping(None), "pass wrapping: no kernel", {}),
        (Wrapping(broken), "pass wrapping: .*no such shape", {"inner_pass": "Broken"}),
    ],
)
def test_a_failing_pass_is_named(
    step: Pass, message: str, details: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager, "pipeline", lambda target, ranges, quantization, recall: (step,))
    with pytest.raises(PassError, match=message) as caught:
        manager.lower(module_with(rows(1)), HOST, {})
    failure = caught.value.failure
    assert (failure.code, failure.pass_name) == ("pass.failed", step.name)
    assert failure.details == details


@tvm.transform.module_pass(opt_level=0, name="Greedy")
def greedy(module: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
    raise ValueError("std::bad_alloc")


def test_memory_that_runs_out_is_not_the_passs_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        manager,
        "pipeline",
        lambda target, ranges, quantize, recall: (FromTVM(Phase.PACK, greedy),),
    )
    with pytest.raises(Exception, match="bad_alloc") as caught:
        manager.lower(module_with(rows(1)), HOST, {})
    assert is_out_of_memory(caught.value)
    assert not isinstance(caught.value, PassError)


def test_an_operator_that_survived_lowering_is_refused() -> None:
    with pytest.raises(CodegenError) as caught:
        generate.generate(module_with(rows(1)), HOST)
    assert caught.value.code == "codegen.failed"


def test_large_constants_become_parameters_and_equal_ones_share_one() -> None:
    small, large = rows(1)[0], np.ones((1, 16), np.float32)
    lowered = manager.lower(module_with(small, large), HOST, {})
    assert weights.separate(lowered).constants == ()
    big = rows(64)
    separated = weights.separate(manager.lower(module_with(big), HOST, {}))
    assert len(separated.constants) == 1
    assert len(separated.module["main"].params) == 2
    np.testing.assert_array_equal(separated.constants[0].numpy().reshape(big.shape), big)


def test_weights_are_written_aligned(tmp_path: Path) -> None:
    constants = [
        tvm.runtime.tensor(np.full(3, 7, np.int8)),
        tvm.runtime.tensor(np.arange(4, dtype=np.float64)),
    ]
    written = weights.write(constants, tmp_path / "w")
    assert [(entry.dtype, entry.shape, entry.offset) for entry in written.table] == [
        ("int8", (3,), 0),
        ("float64", (4,), 64),
    ]
    data = (tmp_path / "w").read_bytes()
    assert written.entry == FileEntry(hashlib.sha256(data).hexdigest(), len(data))
    assert np.frombuffer(data, np.float64, 4, 64).tolist() == [0, 1, 2, 3]


def test_no_constants_make_no_file(tmp_path: Path) -> None:
    assert weights.write([], tmp_path / "w") == Written((), None)
    assert not (tmp_path / "w").exists()
