import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest

from compiler import targets
from compiler.errors import ToolchainMissing
from compiler.key import action_key
from compiler.toolchain import build, versions, zig
from relaxd.contract.action import TOOLCHAIN, differences
from relaxd.contract.request import CompileRequest

MODEL = "sha256:" + "0" * 64
TOOLS = {"tvm": "1", "pipeline": "abc"}


def key(
    model: str = MODEL, target: str = "x86-64-v3", tools: dict[str, str] = TOOLS, **declared: Any
) -> Any:
    return action_key(model, CompileRequest.of(**declared), targets.resolve(target), tools)


def test_equal_requests_have_equal_keys() -> None:
    assert (
        key(dims={"a": "1:8", "b": 4}).digest
        == key(dims={"b": (4, 4), "a": {"min": 1, "max": 8}}).digest
    )
    assert key(targets=("native", "x86-64-v2")).digest == key().digest


@pytest.mark.parametrize(
    ("changed", "part"),
    [
        ({"model": "sha256:" + "1" * 64}, "model"),
        ({"target": "x86-64-v2"}, "target"),
        ({"dims": {"n": 4}}, "request.dims"),
        ({"options": {"seed": 1}}, "options.seed"),
        ({"tools": {**TOOLS, "tvm": "2"}}, "toolchain.tvm"),
        ({"tools": {**TOOLS, "pipeline": "abd"}}, "pipeline"),
    ],
)
def test_every_part_makes_another_key_and_is_named(changed: dict[str, Any], part: str) -> None:
    one, other = key(), key(**changed)
    assert one.digest != other.digest
    changes = differences(one.parts, other.parts)
    assert changes
    assert all(change.part.startswith(part) for change in changes)


def test_a_dump_makes_no_other_bundle() -> None:
    assert key(options={"dump": True}) == key()


@pytest.mark.parametrize(
    ("target", "own", "another"),
    [("x86-64-v3", "standalone", "vm"), ("armv7", "standalone", "vm")],
)
def test_the_flavour_counts_as_it_is_built(target: str, own: str, another: str) -> None:
    default = key(target=target)
    assert key(target=target, options={"flavour": own}) == default
    (change,) = differences(default.parts, key(target=target, options={"flavour": another}).parts)
    assert change.part == "options.flavour"


def test_a_label_of_the_target_does_not_count() -> None:
    target = targets.resolve("x86-64-v4")
    relabelled = dataclasses.replace(target, status=targets.TargetStatus.EXECUTED)
    request = CompileRequest.of()
    assert action_key(MODEL, request, target, TOOLS) == action_key(
        MODEL, request, relabelled, TOOLS
    )


def test_the_toolchain_names_what_decides_the_bytes() -> None:
    parts = versions.versions()
    assert {"tvm", "llvm", "linker", "pipeline"} <= parts.keys()
    assert all(parts.values())


@pytest.mark.parametrize(("package", "counts"), [("numpy", True), ("no-such-reader", False)])
def test_torch_counts_where_it_is_installed(
    monkeypatch: pytest.MonkeyPatch, package: str, counts: bool
) -> None:
    monkeypatch.setattr(versions, "TOOLCHAIN", {**TOOLCHAIN, "torch": package})
    versions.versions.cache_clear()
    assert ("torch" in versions.versions()) is counts


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "TOOLCHAIN", {"tvm": "no-such-compiler"})
    versions.versions.cache_clear()
    with pytest.raises(ToolchainMissing, match="no-such-compiler"):
        versions.versions()


ROOT = Path(versions.__file__).parents[2]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the project's tree as far as the key may read it."""
    for name in ("compiler", "relaxd", "docs", "tests/compiler/targets"):
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignore)
    return tmp_path


def change_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "file",
    [
        "compiler/passes/pipelines.py",
        "compiler/codegen/standalone/phones/Info.plist",
        "compiler/codegen/standalone/phones/Model.kt",
        "compiler/codegen/standalone/phones/Model.swift",
        "compiler/codegen/standalone/phones/module.modulemap",
        "compiler/runtimes/threads.c",
        "compiler/runtimes/opencl.cc",
        "compiler/runtimes/support/tvm/support/io.h",
        "compiler/verify/emulation/driver.c",
        "compiler/verify/emulation/engine.mjs",
        "compiler/verify/emulation/board.ld",
        "compiler/verify/emulation/pc/guest/boot.S",
        "compiler/verify/emulation/page.html",
        "relaxd/contract/dims/dims.py",
        "relaxd/loader/tensors/binding.py",
        "relaxd/errors.py",
    ],
)
def test_a_byte_of_each_kind_of_source_makes_another_pipeline(tree: Path, file: str) -> None:
    before = versions.pipeline_digest(tree)
    change_a_byte(tree / file)
    versions.pipeline_digest.cache_clear()
    assert versions.pipeline_digest(tree) != before


def test_a_new_kind_of_file_counts_too(tree: Path) -> None:
    before = versions.pipeline_digest(tree)
    (tree / "compiler/runtimes/table.json").write_text("{}")
    versions.pipeline_digest.cache_clear()
    assert versions.pipeline_digest(tree) != before


def test_every_kind_of_file_in_the_tree_is_tried_above() -> None:
    """A kind that comes to the tree comes to the parameters as well."""
    kinds = {path.suffix for path in versions._sources(ROOT)}
    native = {".S", ".c", ".cc", ".h", ".ld", ".kt", ".swift", ".modulemap", ".plist"}
    assert kinds == {".py", ".mjs", ".html", *native}


@pytest.mark.parametrize(
    "file",
    [
        "docs/operators.md",
        "tests/compiler/targets/test_gpu.py",
        "relaxd/cli/app.py",
        "compiler/README.md",
        "compiler/.build.py.swp",
        "compiler/__pycache__/build.cpython-311.pyc",
    ],
)
def test_docs_tests_and_leavings_make_none(tree: Path, file: str) -> None:
    before = versions.pipeline_digest(tree)
    path = tree / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes((path.read_bytes() if path.is_file() else b"") + b"#")
    versions.pipeline_digest.cache_clear()
    assert versions.pipeline_digest(tree) == before


def test_a_header_makes_another_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A runtime of ours is built again when a header that it includes changes."""
    monkeypatch.setenv("RELAXD_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(zig, "compile_with_zig", write_the_output)
    source, headers = tmp_path / "a.cc", tmp_path / "include"
    headers.mkdir()
    source.write_text('#include "a.h"\n')
    (headers / "a.h").write_text("#define ONE 1\n")
    first = build.library(source, "a.so", ("-O2",), (), "x86_64-linux-gnu", headers=headers)
    again = build.library(source, "a.so", ("-O2",), (), "x86_64-linux-gnu", headers=headers)
    change_a_byte(headers / "a.h")
    changed = build.library(source, "a.so", ("-O2",), (), "x86_64-linux-gnu", headers=headers)
    assert first == again != changed


def write_the_output(*arguments: str, triple: str, language: str) -> None:
    Path(arguments[arguments.index("-o") + 1]).write_text(f"{triple} {language}")
