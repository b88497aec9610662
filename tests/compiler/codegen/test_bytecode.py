"""TVM's bytecode is read and written alike."""

from collections.abc import Callable

import pytest
from tvm import relax

from compiler.codegen import bytecode
from compiler.errors import CodegenError
from tests.compiler.conftest import build_module


@pytest.fixture(scope="module")
def executable() -> relax.VMExecutable:
    return relax.build(
        build_module(lambda _, x: relax.op.exp(x), {"x": (("n", 3), "float32")}), "llvm"
    )


def test_decoding_and_encoding_changes_nothing(executable: relax.VMExecutable) -> None:
    read = bytecode.read(executable)
    main = read.functions[read.index("main")]
    assert main.parameters == ("x",)
    assert main.instructions[-1][0] == bytecode.Operation.RET
    assert bytecode.decode(bytecode.encode(read)) == read
    assert bytecode.with_bytecode(executable, read).as_text() == executable.as_text()


@pytest.mark.parametrize("change", [lambda b: b[:-1], lambda b: b"0" + b[1:], lambda b: b""])
def test_another_form_is_refused(
    executable: relax.VMExecutable, change: Callable[[bytes], bytes]
) -> None:
    content = bytecode.encode(bytecode.read(executable))
    with pytest.raises(CodegenError, match="another form"):
        bytecode.decode(change(content))


def test_a_function_is_found_by_its_name(executable: relax.VMExecutable) -> None:
    with pytest.raises(CodegenError, match="no function f"):
        bytecode.read(executable).index("f")
