"""Bundles that were really built for other machines: refused with what is needed and what is here, and nothing opened."""

import subprocess
import sys
from pathlib import Path

import pytest

import relaxd
from compiler import driver, targets
from compiler.messages import CompileJob
from relaxd.contract.options import CompileOptions
from relaxd.contract.request import CompileRequest
from relaxd.errors import LoadContractError
from relaxd.loader.host import this_host
from tests.compiler.graphs import add_and_divide

_PROGRAM = """
import sys
import relaxd
try:
    relaxd.load(sys.argv[1])
except relaxd.errors.LoadContractError as error:
    print(error.need, "|", error.have, "|", "tvm" in open("/proc/self/maps").read())
"""


def built(folder: Path, name: str) -> Path:
    (folder / "m.onnx").write_bytes(add_and_divide(rows=1).SerializeToString())
    request = CompileRequest.of(dims={"batch": (1, 8)}, options=CompileOptions(verify=False, profile=False)).to_json()
    driver.build(CompileJob(str(folder / "m.onnx"), request, name, str(folder / "out"), "m"))
    return folder / "out"


@pytest.mark.parametrize(
    ("name", "what", "need"),
    [
        ("aarch64", "architecture", "aarch64"),
        ("riscv64", "architecture", "riscv64"),
        ("macos-arm64", "operating system", "darwin"),
        ("windows-x86-64", "operating system", "win32"),
    ],
)
def test_a_bundle_for_another_machine(tmp_path: Path, name: str, what: str, need: str) -> None:
    if this_host().arch != "x86_64":
        pytest.skip("this is such a machine")
    with pytest.raises(LoadContractError) as caught:
        relaxd.load(built(tmp_path, name))
    assert (caught.value.what, caught.value.need) == (what, need)
    assert caught.value.have in (this_host().arch, this_host().os)


def test_a_bundle_that_would_die_of_an_illegal_instruction_is_never_opened(tmp_path: Path) -> None:
    lacking = set(targets.resolve("x86-64-v4").isa) - this_host().isa
    if not lacking:
        pytest.skip("this machine runs x86-64-v4")
    bundle = built(tmp_path, "x86-64-v4")
    printed = subprocess.check_output([sys.executable, "-c", _PROGRAM, str(bundle)], text=True)
    need, have, opened = printed.strip().split(" | ")
    assert lacking <= set(need.split(", "))
    assert have == f"a CPU without {', '.join(sorted(lacking))}"
    assert opened == "False"
