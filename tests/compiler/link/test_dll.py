"""DLLs, of which nothing is run here: what they export, and that all they import is in Windows."""

from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from compiler import build, targets
from compiler.errors import LinkError
from compiler.isolation.messages import CompileJob
from compiler.link import dll
from compiler.link.standalone import FUNCTIONS
from compiler.runtimes import windows
from compiler.toolchain import zig
from relaxd.contract.options import CompileOptions, Flavour
from relaxd.contract.request import CompileRequest
from tests.support.dlls import Dll

WINDOWS = targets.resolve("windows-x86-64")
UNARY = (
    *("Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Ceil", "Cos", "Cosh", "Erf", "Exp"),
    *("Floor", "Gelu", "Log", "Mish", "Round", "Sigmoid", "Sin", "Sinh", "Softplus", "Sqrt"),
    *("Tan", "Tanh"),
)
FLOATS = (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def mathematics() -> onnx.ModelProto:
    """Every function of one number, of two, sums of rows and a sort, in every type of floats."""
    nodes, outputs = [], []

    def add(op: str, inputs: list[str], dtype: int, **attributes: object) -> None:
        name = f"{op}_{dtype}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        outputs.append(helper.make_tensor_value_info(name, dtype, None))

    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 40])]
    for dtype in FLOATS:
        nodes.append(helper.make_node("Cast", ["x"], [f"x{dtype}"], to=dtype))
        for op in UNARY:
            add(op, [f"x{dtype}"], dtype)
        add("Pow", [f"x{dtype}"] * 2, dtype)
        add("Mod", [f"x{dtype}", f"Exp_{dtype}"], dtype, fmod=1)
        add("Softmax", [f"x{dtype}"], dtype, axis=1)
        add("CumSum", [f"x{dtype}", "axis"], dtype)
    axis = helper.make_tensor("axis", TensorProto.INT64, [], [1])
    graph = helper.make_graph(nodes, "mathematics", inputs, outputs, [axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)


def build_dll(folder: Path, flavour: Flavour) -> Dll:
    onnx.save(mathematics(), folder / "m.onnx")
    options = CompileOptions(verify=False, profile=False, flavour=flavour)
    request = CompileRequest.of(dims={"n": (1, 8)}, options=options).to_json()
    out = folder / "out"
    build.build(CompileJob(str(folder / "m.onnx"), request, WINDOWS.name, str(out), "m"))
    return Dll.read(out / "model.dll")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Dll:
    return build_dll(tmp_path_factory.mktemp("plain"), Flavour.STANDALONE)


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Dll:
    return build_dll(tmp_path_factory.mktemp("machine"), Flavour.VM)


def as_exports(names: tuple[str, ...]) -> set[str]:
    """Spell names as a DLL does."""
    return {name.partition(" == ")[2] or name for name in names}


def assert_of_windows(imports: dict[str, set[str]]) -> None:
    for library, names in imports.items():
        assert names <= as_exports(windows.IMPORTS[library])


def test_a_library_needs_what_windows_has(plain: Dll) -> None:
    assert_of_windows(plain.imports)
    assert {"acosf", "pow", "sinhf"} <= plain.imports["api-ms-win-crt-math-l1-1-0.dll"]
    assert plain.entry == 0


def test_a_library_with_a_runtime_needs_its_interface_besides(machine: Dll) -> None:
    imports = machine.imports
    assert imports.pop("tvm_ffi.dll") == {"TVMFFIErrorSetRaisedFromCStrParts"}
    assert_of_windows(imports)
    assert "__tvm_ffi__library_bin" in machine.exports


def test_a_library_exports_the_functions_of_its_header(plain: Dll) -> None:
    assert plain.exports >= {f"relaxd_m_{function}" for function in FUNCTIONS}


def compile_c(folder: Path, source: str) -> Path:
    (folder / "unit.c").write_text(source)
    unit = folder / "unit.o"
    zig.compile_with_zig(
        *("-c", "-O1", "-o", str(unit), str(folder / "unit.c")), triple=WINDOWS.platform.linker
    )
    return unit


def test_every_import_can_be_called(tmp_path: Path) -> None:
    names = [name.partition(" == ")[0] for each in windows.IMPORTS.values() for name in each]
    calls = "".join(f"extern void {name}(void); {name}();" for name in names)
    unit = compile_c(tmp_path, f"void all(void) {{ {calls} }}")
    dll.link([unit], tmp_path / "all.dll", WINDOWS, exports=["all"])
    linked = Dll.read(tmp_path / "all.dll")
    assert linked.exports == {"all"}
    assert linked.imports == {name: as_exports(each) for name, each in windows.IMPORTS.items()}


def test_the_same_objects_give_the_same_bytes(tmp_path: Path) -> None:
    unit = compile_c(tmp_path, "double cos(double); double twice(double x) { return 2 * cos(x); }")
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        dll.link([unit], tmp_path / name / "m.dll", WINDOWS, exports=["twice"])
    one, two = (tmp_path / name / "m.dll" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_an_undefined_symbol_is_a_typed_error(tmp_path: Path) -> None:
    unit = compile_c(tmp_path, "void other(void); void one(void) { other(); }")
    with pytest.raises(LinkError) as caught:
        dll.link([unit], tmp_path / "m.dll", WINDOWS, exports=["one"])
    assert caught.value.code == "link.failed"
    assert "undefined symbol: other" in str(caught.value.failure.details["output"])


def test_a_build_links_in_an_empty_cache_without_a_c_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of a C library's sources take a hundred seconds."""
    monkeypatch.setenv("RELAXD_CACHE_DIR", str(tmp_path / "cache"))
    unit = compile_c(tmp_path, "double cos(double); double twice(double x) { return 2 * cos(x); }")
    dll.link([unit], tmp_path / "m.dll", WINDOWS, exports=["twice"])
    names = [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()]
    assert windows.NAME in names
    assert not [name for name in names if name.endswith((".a", ".obj", ".o"))]


def test_code_without_kernels_comes_as_c(tmp_path: Path) -> None:
    source = tmp_path / "lib0.c"
    source.write_text('#include "own.h"\n__declspec(dllexport) int answer(void) { return OWN; }\n')
    (tmp_path / "own.h").write_text("#define OWN 42\n")
    dll.link_with_runtime([source], tmp_path / "m.dll", WINDOWS, [f"-I{tmp_path}"])
    assert Dll.read(tmp_path / "m.dll").exports == {"answer"}


def test_a_missing_runtime_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = compile_c(tmp_path, "int x;")
    monkeypatch.setattr("compiler.runtimes.folder", lambda: tmp_path / "nothing")
    with pytest.raises(LinkError, match="windows-x86-64") as caught:
        dll.link_with_runtime([unit], tmp_path / "m.dll", WINDOWS, ())
    assert caught.value.code == "link.runtime_missing"
