"""Packages for micro-controllers and phones: what is in them is compiled, linked and run on an
emulated board, or compared with what their tools ask for.
"""

import json
import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from compiler import compile_model
from compiler.verify.emulation import board, emulator
from relaxd.contract.bundle.manifest import FileEntry, LoadContract
from relaxd.errors import DeclarationError
from relaxd.packages.kinds import Kind, package_of
from tests.relaxd.packages.models import mlp
from tests.relaxd.packages.test_interface import manifest
from tests.relaxd.packages.test_programs import expected_row, need, package, run
from tests.support.emulated import require_board, with_c_library

pytestmark = pytest.mark.slow

FOLDERS = {
    "arduino": ("src", "src/cortex-m4/fpv4-sp-d16-hard", "extras/example"),
    "cmsis": ("include", "lib", "examples"),
    "zephyr": ("include", "lib", "samples/run/src"),
}
"""Of headers, the library and the example in C."""
_PRINTED = """\
#include <stdio.h>
static int show(const char *format, ...) { return fputs(format, stderr); }
#define printf show
"""
_CALLER = """\
#include <stdio.h>
#include "relaxd_mlp_model.h"
static _Alignas(64) uint8_t context[4096], arena[8192];
static float x[32 * 8], y[7 * 8];
static const float expected[7] = {%s};

int main(int count, char **arguments) {
  relaxd_mlp *model = relaxd_mlp_make(context, sizeof context);
  relaxd_mlp_dims dims = {.n = RELAXD_MLP_N_MAX};
  size_t need = 0;
  for (int i = 0; i < 32 * 8; ++i) x[i] = (float)(i %% 32) / 32;
  if (model == NULL || relaxd_mlp_make(context, 8) != NULL) return 2;
  if (relaxd_mlp_prepare(model, &dims, arena, sizeof arena, &need) != RELAXD_OK) return 3;
  if (relaxd_mlp_count_x(&dims) != 256 || relaxd_mlp_elements(model, 0) != 56) return 5;
  if (relaxd_mlp_compute(model, &(relaxd_mlp_inputs){x}, &(relaxd_mlp_outputs){y})) return 6;
  for (int i = 0; i < 56; ++i) {
    const float apart = y[i] - expected[i %% 7];
    if (apart > 1e-5f || apart < -1e-5f) return 7;
  }
  dims.n = RELAXD_MLP_N_MAX + 1;
  if (relaxd_mlp_prepare(model, &dims, arena, sizeof arena, &need) != RELAXD_DIM) return 8;
  fputs(relaxd_mlp_failure(model), stderr);
  return 0;
}
"""


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first model for a micro-controller."""
    folder = tmp_path_factory.mktemp("boards") / "mlp"
    options = {"profile": False, "verify": False}
    model = folder.with_suffix(".onnx")
    model.write_bytes(mlp().SerializeToString())
    compile_model(model, output=folder, target="cortex-m4", dims={"n": "1:8"}, options=options)
    return folder


def run_on_board(linked: Path, source: Path) -> subprocess.CompletedProcess[str]:
    """The program of a source and the library that lies with its header in a folder."""
    target = require_board("cortex-m4")
    qemu = emulator.find(target)
    assert not isinstance(qemu, str)
    assert board.build(linked, "relaxd_mlp", target, linked / "program", source) is None
    command = board.command(qemu, linked / "program")
    return subprocess.run(command, capture_output=True, text=True, check=False)


@with_c_library
@pytest.mark.parametrize("kind", FOLDERS)
def test_a_package_is_linked_and_run_on_a_board(kind: str, bundle: Path, tmp_path: Path) -> None:
    package(bundle, kind, tmp_path / "package")
    headers, library, example = (tmp_path / "package" / name for name in FOLDERS[kind])
    linked = tmp_path / "linked"
    shutil.copytree(headers, linked)
    shutil.copy(library / "librelaxd_mlp.a", linked / "model.a")
    shutil.copy(headers / "relaxd_mlp.h", linked / "model.h")
    caller, shown = linked / "caller.c", linked / "shown.c"
    numbers = expected_row(np.arange(32) / 32)
    caller.write_text(_CALLER % ", ".join(map(repr, map(float, numbers))))
    done = run_on_board(linked, caller)
    assert (done.returncode, done.stdout + done.stderr) == (0, "n = 9, it must be 1 to 8")
    shown.write_text(_PRINTED + (example / "main.c").read_text())
    done = run_on_board(linked, shown)
    assert (done.returncode, done.stdout + done.stderr) == (0, "y: %g ...\n")


_ARDUINO = """\
#include <cstddef>
#include <cstdint>
struct Port {
  void begin(long);
  template <typename T> void println(T);
};
extern Port Serial;
"""


def test_an_arduino_library(bundle: Path, tmp_path: Path) -> None:
    need("c++")
    package(bundle, "arduino", tmp_path / "mlp")
    text = (tmp_path / "mlp/library.properties").read_text()
    properties = dict(line.split("=", 1) for line in text.splitlines())
    required = {"name", "version", "author", "maintainer", "sentence", "paragraph", "url"}
    assert required | {"category", "architectures"} < properties.keys()
    assert properties["precompiled"] == "true"
    assert (tmp_path / "mlp/src" / properties["includes"]).is_file()
    (tmp_path / "arduino.h").write_text(_ARDUINO)
    run(
        *("c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-x", "c++"),
        *("-include", "arduino.h", "-I", "mlp/src", "mlp/examples/run/run.ino"),
        cwd=tmp_path,
    )


def test_a_cmsis_pack_names_files_that_it_has(bundle: Path, tmp_path: Path) -> None:
    package(bundle, "cmsis", tmp_path)
    root = ElementTree.parse(tmp_path / "relaxd.relaxd_mlp.pdsc").getroot()
    order = ["vendor", "name", "description", "url", "license", "releases", "conditions"]
    assert [child.tag for child in root] == [*order, "components"]
    named = [file.attrib["name"] for file in root.iter("file")]
    assert named
    assert all((tmp_path / name).exists() for name in named)
    (require,) = root.iter("require")
    assert require.attrib == {"Dcore": "Cortex-M4", "Dfpu": "SP_FPU"}


def test_a_zephyr_module_names_files_that_it_has(bundle: Path, tmp_path: Path) -> None:
    package(bundle, "zephyr", tmp_path)
    module = yaml.safe_load((tmp_path / "zephyr/module.yml").read_text())
    assert module["name"] == "relaxd_mlp"
    assert (tmp_path / module["build"]["kconfig"]).is_file()
    lists = (tmp_path / module["build"]["cmake"] / "CMakeLists.txt").read_text()
    for name in re.findall(r"\$\{CMAKE_CURRENT_LIST_DIR\}/(\S+)\)", lists):
        assert (tmp_path / name).is_file()
    symbol = re.findall(r"CONFIG_(\w+)\)", lists)[0]
    assert f"config {symbol}\n" in (tmp_path / "Kconfig").read_text()
    assert f"CONFIG_{symbol}=y\n" in (tmp_path / "samples/run/prj.conf").read_text()


@pytest.mark.parametrize(
    ("name", "convention"), [("rv32imc", "!FLOAT_HARD"), ("rv32imafc", "FLOAT_HARD")]
)
def test_packages_for_risc_v_are_those_with_a_word_for_its_processors(
    name: str, convention: str
) -> None:
    files = {"model.a": FileEntry("0" * 64, 1)}
    built = manifest(target={"name": name}, load=LoadContract("riscv32", "none"), files=files)
    texts, _ = package_of(Kind.ZEPHYR, built)
    (condition,) = re.findall(r"depends on (.*)", texts["Kconfig"])
    assert condition.split(" && ")[-1] == convention
    for kind in (Kind.ARDUINO, Kind.CMSIS):
        with pytest.raises(DeclarationError, match=f"no word for the processors of {name}"):
            package_of(kind, built)


def test_a_swift_package_has_the_layout_of_a_framework() -> None:
    files = dict.fromkeys(["model.a", "weights.bin", "Model.swift"], FileEntry("0" * 64, 1))
    texts, copies = package_of(
        Kind.SWIFT, manifest(load=LoadContract("aarch64", "ios"), files=files)
    )
    listed = json.dumps([*texts, *copies])
    prefix = next(path for path in copies if path.endswith("Info.plist")).split(".")[0]
    assert f'"{prefix}.xcframework/ios-arm64/Headers/module.modulemap"' in listed
    assert f'path: "{prefix}.xcframework"' in texts["Package.swift"]
    name = re.findall(r'targets: \["(\w+)"\]', texts["Package.swift"])[0]
    assert f'"Sources/{name}/Model.swift"' in listed
    assert 'resources: [.copy("weights.bin")]' in texts["Package.swift"]
    assert texts["Package.swift"].count("(") == texts["Package.swift"].count(")")


@pytest.fixture(scope="module")
def phone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first model for Android."""
    folder = tmp_path_factory.mktemp("phone") / "mlp"
    model = folder.with_suffix(".onnx")
    model.write_bytes(mlp().SerializeToString())
    options = {"profile": False, "verify": False}
    compile_model(model, output=folder, target="android-arm64", dims={"n": "1:8"}, options=options)
    return folder


def test_an_aar_has_prefabs_files(phone: Path, tmp_path: Path) -> None:
    package(phone, "aar", tmp_path / "aar")
    packed = shutil.make_archive(str(tmp_path / "relaxd_mlp"), "zip", tmp_path / "aar")
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(packed, unpacked)
    root = ElementTree.parse(unpacked / "AndroidManifest.xml").getroot()
    assert root.attrib["package"] == "relaxd.mlp"
    prefab = json.loads((unpacked / "prefab/prefab.json").read_text())
    module = unpacked / "prefab/modules" / prefab["name"]
    library = json.loads((module / "module.json").read_text())["library_name"]
    abi = json.loads((module / "libs/android.arm64-v8a/abi.json").read_text())
    assert (abi["abi"], abi["static"], abi["stl"]) == ("arm64-v8a", True, "none")
    archive = module / "libs/android.arm64-v8a" / f"{library}.a"
    assert archive.read_bytes() == (phone / "model.a").read_bytes()
    called = set(re.findall(r"relaxd_mlp_\w+(?=\()", (unpacked / "extras/model_jni.c").read_text()))
    defined = run("llvm-nm", "--defined-only", "--format=just-symbols", archive, cwd=tmp_path)
    assert called <= set(defined.split())
    assert called <= set(
        re.findall(r"relaxd_mlp_\w+(?=\()", (module / "include/model.h").read_text())
    )
    assert (unpacked / "assets/relaxd_mlp.weights.bin").is_file()
