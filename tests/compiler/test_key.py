import dataclasses
from typing import Any

import pytest

from compiler import targets
from compiler.key import action_key
from compiler.toolchain import versions
from relaxd.contract.action import differences
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
    assert all(name.startswith(part) for name in differences(one.parts, other.parts))


def test_a_label_of_the_target_does_not_count() -> None:
    target = targets.resolve("x86-64-v4")
    relabelled = dataclasses.replace(target, status=targets.TargetStatus.EXECUTED)
    request = CompileRequest.of()
    assert action_key(MODEL, request, target, TOOLS) == action_key(
        MODEL, request, relabelled, TOOLS
    )


def test_the_toolchain_names_what_decides_the_bytes() -> None:
    found = versions.versions()
    assert {"tvm", "llvm", "linker", "pipeline"} <= found.keys()
    assert all(found.values())


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "_PACKAGES", {"tvm": "no-such-compiler"})
    versions.versions.cache_clear()
    with pytest.raises(versions.ToolchainMissing, match="no-such-compiler"):
        versions.versions()
