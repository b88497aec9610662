"""`relaxd families` of a bundle and of a model."""

from pathlib import Path
from typing import Any

import pytest

from compiler import api
from compiler.isolation.messages import CompileJob, FamiliesJob
from tests.service.fakes import write_bundle
from tests.support.bundles import seal
from tests.support.models.external import pack, write

COPY = {"copy": "it is not a reshape alone"}
KERNELS = [
    {
        "name": "fused_matmul",
        "family": "matmul",
        "tile": "6x16, depth 384 a pass",
        "declined": COPY,
    },
    {"name": "mean", "family": "generic", "tile": "", "declined": COPY},
    {"name": "reshape", "family": "copy", "tile": "", "declined": {}},
]


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    job = CompileJob(str(tmp_path / "net.onnx"), {}, "x86-64-v3", str(folder), "net")
    (tmp_path / "net.onnx").write_bytes(b"a model")
    write_bundle(job, folder)
    return folder


def test_a_bundle_names_them(relaxd: Any, bundle: Path) -> None:
    seal(bundle, "kernels.json", {"kernels": KERNELS})
    assert relaxd("families", str(bundle), "--json").json == {
        "target": "x86-64-v3",
        "kernels": KERNELS,
    }
    lines = relaxd("families", str(bundle)).out.splitlines()
    assert lines[0].split() == ["KERNEL", "FAMILY", "TILE"]
    assert lines[1].split() == ["fused_matmul", "matmul", "6x16,", "depth", "384", "a", "pass"]
    # Kernels that the same families declined share the reasons.
    assert lines[lines.index("fused_matmul, mean") + 1] == "declined by"
    assert lines[lines.index("fused_matmul, mean") + 2].split() == ["copy", *COPY["copy"].split()]


def test_a_table_of_long_names_fits_into_a_terminal(
    relaxd: Any, bundle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.console import Console

    from relaxd.cli import families

    long = {**KERNELS[0], "name": "fused_" + "_".join(["reshape_transpose_add"] * 6)}
    console = Console(width=80)
    with console.capture() as capture:
        console.print(families._render([long]))
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= 80
    assert "6x16, depth 384 a pass" in capture.get()


def test_a_bundle_of_an_older_compiler_does_not(relaxd: Any, bundle: Path) -> None:
    ended = relaxd("families", str(bundle))
    assert ended.code == 1
    assert "does not name the families" in ended.err


@pytest.mark.parametrize("sent", ["file", "folder", "tar"])
def test_a_model_is_compiled_up_to_its_loops(
    relaxd: Any, model: str, sent: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = []

    def run(job: FamiliesJob, **settings: Any) -> dict[str, Any]:
        jobs.append(job)
        return {"target": job.target, "kernels": KERNELS}

    monkeypatch.setattr(api, "run_child", run)
    files = {"m.onnx": Path(model).read_bytes()}
    folder, tar = write(tmp_path / "m", files), pack(tmp_path / "m.tar", files, "m/")
    source = {"file": model, "folder": str(folder), "tar": str(tar)}[sent]
    ended = relaxd("families", source, "--dim", "n=1:8", "--target", "x86-64-v2", "--json")
    assert ended.json == {"target": "x86-64-v2", "kernels": KERNELS}
    assert (jobs[0].target, list(jobs[0].request["dims"])) == ("x86-64-v2", ["n"])


def test_a_source_that_is_absent_is_a_usage_error(relaxd: Any) -> None:
    ended = relaxd("families", "nonesuch")
    assert ended.code == 2
    assert "there is no file" in ended.err
