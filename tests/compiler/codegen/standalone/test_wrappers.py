"""Wrappers for phones: Kotlin over JNI, whose C is compiled here, and Swift with its framework."""

import plistlib
import re

import pytest

from compiler.codegen.standalone.source import Signature
from compiler.codegen.standalone.wrappers import class_name, wrappers
from relaxd.contract.dims.dims import Dim
from relaxd.contract.dims.tensors import TensorSpec


def signature(*inputs: str, outputs: tuple[str, ...] = ("y=float32[n,7]",)) -> Signature:
    def specs(texts):
        return tuple(TensorSpec.of(*text.split("=")) for text in texts)

    dims = (Dim.of("n", "1:8"), Dim.of("m", "0:64%8"))
    return Signature("two words", specs(inputs), specs(outputs), dims, 640)


def texts(system: str, *inputs: str) -> dict[str, str]:
    return wrappers(signature(*inputs), "relaxd_two_words", system, system)


@pytest.mark.parametrize("system", ["linux", "darwin", "win32", "wasm"])
def test_other_systems_have_none(system):
    assert texts(system, "x=float32[n,32]") == {}


def test_kotlin():
    files = texts("android", "x=float32[n,2*m]", "flags=bool[min(n,m),m//2%3]")
    text = files["Model.kt"]
    assert "class TwoWords(private val weights: ByteBuffer?)" in text
    assert "fun bind(`m`: Long, `n`: Long)" in text
    assert "longArrayOf(`m`, `n`)" in text
    assert "`x` = room(4L * `n` * (2L * `m`))" in text
    floored = "Math.floorMod(Math.floorDiv(`m`, 2L), 3L)"
    assert f"`flags` = room(1L * minOf(`n`, `m`) * {floored})" in text
    assert "* m: 0 to 64, a multiple of 8" in text
    assert 'System.loadLibrary("relaxd_two_words")' in text
    assert len(text.splitlines()) < 100
    natives = set(re.findall(r"external fun native(\w+)", text))
    assert set(re.findall(r"^NATIVE\(\w+, (\w+)\)", files["model_jni.c"], re.M)) == natives


def test_swift():
    files = texts("ios", "x=float32[n,2*m]", "ids=int64[n]", "half=float16[m]")
    text = files["Model.swift"]
    assert "public final class TwoWords" in text
    assert "`x` = UnsafeMutableBufferPointer<Float>(start: nil, count: 0)" in text
    assert "`ids` = try given(1, 1 * `n`)" in text
    assert "UnsafeMutableBufferPointer<UInt16>" in text
    assert "public var `y`: UnsafeBufferPointer<Float> { result(0) }" in text
    assert len(text.splitlines()) < 100
    (library,) = plistlib.loads(files["Info.plist"].encode())["AvailableLibraries"]
    assert library["LibraryPath"] == "librelaxd_two_words.a"
    assert files["module.modulemap"].startswith("module relaxd_two_words {")


@pytest.mark.parametrize("system", ["android", "ios"])
def test_names_of_a_model_are_made_fit_and_unlike(system):
    files = texts(
        system, "run=float32[n]", "a/b=float32[n]", "a.b=float32[n]", "7=float32[n]", "n=float32[n]"
    )
    text = next(iter(files.values()))
    for name in ("`run_`", "`a_b`", "`a_b_`", "`_7`"):
        assert f"{name} =" in text
    assert "@" not in re.sub("@JvmStatic", "", text)
    assert "`n` =" in text
    assert "`n_`: " in text


@pytest.mark.parametrize(
    ("prefix", "name"),
    [("relaxd_mlp", "Mlp"), ("relaxd_two_words", "TwoWords"), ("relaxd_7b", "Model7b")],
)
def test_classes(prefix, name):
    assert class_name(prefix) == name
