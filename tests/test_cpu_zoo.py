from pathlib import Path

import pytest

from compiler import targets
from tests.compiler.graphs import add_and_divide
from tests.support import cpu_zoo
from tests.support.binaries import code_of, expected_machine, machine_of

ONE_OF_EACH_FORMAT = ("x86-64-v3", "armv7", "macos-arm64", "windows-x86-64")


@pytest.mark.slow
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


def test_a_run_that_stopped_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Builds that were right are not made again, those that were wrong are."""
    asked: list[tuple[str, str]] = []

    def read(model: str, result: dict[str, str]) -> cpu_zoo.Built:
        asked.append((model, result["target"]))
        failed = asked[-1] == ("minilm", "armv7") and asked.count(asked[-1]) == 1
        return cpu_zoo.Built(model, result["target"], wrong="late" if failed else None)

    def compile_all(declared: list[str], names: list[str], output: Path) -> list[dict[str, str]]:
        assert output.name == names[0]
        return [{"target": name} for name in names]

    monkeypatch.setattr(cpu_zoo, "_read", read)
    monkeypatch.setattr(cpu_zoo, "compile_all", compile_all)
    monkeypatch.setattr(cpu_zoo, "_declared", lambda model, folder: [])
    words = ["--json", str(tmp_path / "zoo.json"), "--models", "minilm", "--targets", "armv7"]
    assert cpu_zoo.main(words) == 1
    assert cpu_zoo.main([*words, "riscv64", "--resume"]) == 0
    assert asked == [("minilm", "armv7"), ("minilm", "armv7"), ("minilm", "riscv64")]
    assert cpu_zoo.main([*words, "riscv64", "--resume"]) == 0
    assert len(asked) == 3
    with pytest.raises(SystemExit):
        cpu_zoo.main(["--resume"])
