"""From a module to machine code: what fails, and with which error."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from compiler import targets
from compiler.bundle import weights
from compiler.codegen import generate
from compiler.errors import CodegenError, PassError
from compiler.passes import manager

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


def test_a_failing_pass_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    @tvm.transform.module_pass(opt_level=0, name="Broken")
    def broken(module: tvm.IRModule, context: tvm.transform.PassContext) -> tvm.IRModule:
        raise ValueError("no such shape")

    monkeypatch.setattr(manager, "optimise", lambda module, target, dims: broken(module))
    with pytest.raises(PassError, match="no such shape") as caught:
        manager.lower(module_with(rows(1)), HOST, ())
    assert (caught.value.code, caught.value.failure.pass_name) == ("pass.failed", "Broken")


def test_a_failing_function_of_ours_is_named_after_its_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def optimise(module: tvm.IRModule, target: object, dims: object) -> None:
        tvm.relax.transform.ToNonDataflow()(module)
        exec(
            compile(
                "raise ValueError('no kernel')", manager._PASSES / "kernel_selection.py", "exec"
            )
        )

    monkeypatch.setattr(manager, "optimise", optimise)
    with pytest.raises(PassError, match="no kernel") as caught:
        manager.lower(module_with(rows(1)), HOST, ())
    assert caught.value.failure.pass_name == "kernel_selection"


def test_an_operator_that_survived_lowering_is_refused() -> None:
    with pytest.raises(CodegenError) as caught:
        generate.generate(module_with(rows(1)), HOST)
    assert caught.value.code == "codegen.failed"


def test_large_constants_become_parameters_and_equal_ones_share_one() -> None:
    small, large = rows(1)[0], np.ones((1, 16), np.float32)
    lowered = manager.lower(module_with(small, large), HOST, ())
    assert weights.separate(lowered).constants == ()
    big = rows(64)
    separated = weights.separate(manager.lower(module_with(big), HOST, ()))
    assert len(separated.constants) == 1
    assert len(separated.module["main"].params) == 2
    np.testing.assert_array_equal(separated.constants[0].numpy().reshape(big.shape), big)


def test_weights_are_written_aligned(tmp_path: Path) -> None:
    constants = [
        tvm.runtime.tensor(np.full(3, 7, np.int8)),
        tvm.runtime.tensor(np.arange(4, dtype=np.float64)),
    ]
    table = weights.write(constants, tmp_path / "w")
    assert [(entry.dtype, entry.shape, entry.offset) for entry in table] == [
        ("int8", (3,), 0),
        ("float64", (4,), 64),
    ]
    data = (tmp_path / "w").read_bytes()
    assert np.frombuffer(data, np.float64, 4, 64).tolist() == [0, 1, 2, 3]


def test_no_constants_make_no_file(tmp_path: Path) -> None:
    assert weights.write([], tmp_path / "w") == ()
    assert not (tmp_path / "w").exists()
