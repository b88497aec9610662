from pathlib import Path

import pytest

from compiler import targets
from tests.compiler.graphs import add_and_divide
from tests.support import cpu_zoo
from tests.support.binaries import code_of, expected_machine, machine_of

pytestmark = pytest.mark.slow

ONE_OF_EACH_FORMAT = ("x86-64-v3", "armv7", "macos-arm64", "windows-x86-64")


def test_one_command_serves_every_target_without_a_compiler(tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(add_and_divide().SerializeToString())
    declared = [
        str(tmp_path / "m.onnx"),
        "--dim",
        "batch=1:8",
        "--option",
        "verify=false",
        "--option",
        "profile=false",
    ]
    results = cpu_zoo.compile_all(declared, ONE_OF_EACH_FORMAT, tmp_path / "out")
    assert [result.get("error") for result in results] == [None] * len(ONE_OF_EACH_FORMAT)
    for name in ONE_OF_EACH_FORMAT:
        target = targets.resolve(name)
        assert machine_of(
            code_of(tmp_path / "out" / name / target.platform.library, target)
        ) == expected_machine(target)
