import json
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from artifacts import open_store
from artifacts.oci import bundle_annotations, publish_bundle
from compiler import api
from compiler.errors import ImportFailed
from compiler.isolation.messages import CompileJob, Event, InspectJob, Log, StageStarted
from compiler.isolation.usage import OnUsage
from compiler.toolchain.objects import KernelObjects
from relaxd.contract.bundle.manifest import DUMP_START, Manifest
from relaxd.contract.states import Stage
from tests.service.fakes import mismatch, write_bundle

Child = Callable[..., Any]


RELU = {"node": "/relu", "op": "Relu", "supported": True, "outputs": ["float32[batch, 3]"]}
REPORTS: dict[bytes, dict[str, Any]] = {
    b"a model": {
        "supported": False,
        "nodes": [
            {"node": "/a", "op": "Relu", "supported": True},
            {"node": "/n", "op": "Odd", "supported": False, "reason": "[unknown]"},
            {"node": "/c", "op": "Constant", "supported": True},
            {"node": "/d", "op": "Constant", "supported": False},
        ],
    },
    b"good": {
        "supported": True,
        "inputs": ["x"],
        "dims": {"batch": {"min": 1, "multiple": 1}},
        "operators": {"Relu": 1000},
        "nodes": [{**RELU, "node": f"/relu{i}"} for i in range(1000)],
        "error": None,
    },
    b"undeclared": {
        "supported": False,
        "inputs": ["x"],
        "nodes": [RELU],
        "error": {
            "message": "the type of 'x' is not known",
            "hint": "declare it: --input x=float32[n]",
        },
    },
}


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> list[CompileJob | InspectJob]:
    """The jobs that a stand-in for the compile process was given; a model that says `bad` does not
    compile.
    """
    jobs: list[CompileJob | InspectJob] = []

    def run(
        job: CompileJob | InspectJob,
        *,
        on_event: Callable[[Event], None] = lambda event: None,
        limits: None = None,
        kernels: KernelObjects | None = None,
        on_usage: OnUsage = lambda usage: None,
    ) -> Manifest | dict[str, Any]:
        jobs.append(job)
        on_event(StageStarted(Stage.IMPORT))
        on_event(Log("a line of the compiler"))
        if Path(job.model).read_bytes() == b"bad":
            raise ImportFailed("it is bad", reason="bad", node="/n", hint="make it good")
        if "unknown" in job.request.get("dims", {}):
            raise ImportFailed("no such dim", reason="dim", field="dims.unknown")
        if isinstance(job, InspectJob):
            return REPORTS[Path(job.model).read_bytes()]
        Path(job.output).rmdir()
        return write_bundle(job, Path(job.output))

    monkeypatch.setattr(api, "run_child", run)
    return jobs


def test_one_target_fills_the_folder(relaxd: Any, model: str, child: list[CompileJob]) -> None:
    ended = relaxd("compile", model, "--const", "sr=16000", "--const", "mode=fast", "-v")
    assert ended.code == 0
    assert Path("out/manifest.json").exists()
    assert child[0].request["consts"] == {"sr": 16000, "mode": "fast"}
    assert child[0].model_name == "net"
    assert "native: import" in ended.err
    assert "a line of the compiler" in ended.err
    assert relaxd("compile", model).code == 0, "an older bundle is replaced"


def test_the_last_line_says_how_fast_and_how_exact(
    relaxd: Any, model: str, child: list[CompileJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    write = write_bundle

    def write_measured(job: CompileJob, folder: Path) -> Manifest:
        manifest = write(job, folder)
        reference = {"median_ms": 2.0, "engine": "onnxruntime 1.31.1"}
        point = {"label": "opt", "dims": {"n": 4}, "median_ms": 1.42, "reference": reference}
        (folder / "profile.json").write_text(json.dumps({"measured": True, "points": [point]}))
        return manifest

    monkeypatch.setitem(globals(), "write_bundle", write_measured)
    line = "1.42 ms at n=4, 0.71 of onnxruntime's time"
    assert relaxd("compile", model).out.splitlines()[-1] == f"  {line}"
    (result,) = relaxd("compile", model, "--json").json["results"]
    assert result["summary"] == line


def test_the_document_has_the_digest_that_a_service_would_publish(
    relaxd: Any, model: str, child: list[CompileJob], tmp_path: Path
) -> None:
    (result,) = relaxd("compile", model, "--json").json["results"]
    manifest = Manifest.from_json(json.loads(Path("out/manifest.json").read_bytes()))
    annotations = bundle_annotations(manifest.action_key["digest"], "native")
    blobs = open_store(tmp_path / "store").blobs
    Path("out/profile.json").unlink()  # as a worker does, which attaches it to the bundle
    assert result["digest"] == publish_bundle(blobs, Path("out"), annotations).digest
    assert result["output"] == "out"


def test_samples_count_in_the_request(relaxd: Any, model: str, child: list[CompileJob]) -> None:
    """Samples count as from Python: other samples make another action key."""
    Path("own.npz").write_bytes(b"samples")
    assert relaxd("compile", model, "--samples", "own.npz").code == 0
    assert child[0].request["samples"] == f"sha256:{sha256(b'samples').hexdigest()}"
    assert child[0].samples == str(Path("own.npz").absolute())


def test_several_targets_fill_folders_of_their_own(
    relaxd: Any, model: str, child: list[CompileJob]
) -> None:
    ended = relaxd("compile", model, "--target", "x86-64-v2", "--target", "x86-64-v3", "--json")
    assert [result["output"] for result in ended.json["results"]] == [
        "out/x86-64-v2",
        "out/x86-64-v3",
    ]
    assert Path("out/x86-64-v3/manifest.json").exists()


def test_a_failure_leaves_the_older_bundle(
    relaxd: Any, model: str, child: list[CompileJob]
) -> None:
    assert relaxd("compile", model).code == 0
    Path(model).write_bytes(b"bad")
    ended = relaxd("compile", model)
    assert ended.code == 1
    assert "at: stage import, node /n" in ended.err
    assert Path("out/manifest.json").exists()


def test_a_declaration_that_the_compiler_refuses_is_a_bad_request(
    relaxd: Any, model: str, child: list[CompileJob]
) -> None:
    for command in ("compile", "inspect"):
        ended = relaxd(command, model, "--dim", "unknown=1:8")
        assert (ended.code, "no such dim" in ended.err) == (2, True), command


def test_inspect_marks_what_is_not_supported(
    relaxd: Any, model: str, child: list[InspectJob]
) -> None:
    out = relaxd("inspect", model).out
    assert "/c" not in out, "constants that can be compiled say nothing"
    assert "supported: no, 2 of 4 nodes cannot be compiled" in out
    assert "/a" not in out
    assert [line.split() for line in out.splitlines()[-2:]] == [
        ["/n", "Odd", "no", "[unknown]"],
        ["/d", "Constant", "no"],
    ]
    assert "/a" in relaxd("inspect", model, "--nodes").out


def test_inspect_of_a_model_that_compiles_ends_with_the_next_command(
    relaxd: Any, model: str, child: list[InspectJob]
) -> None:
    Path(model).write_bytes(b"good")
    ended = relaxd("inspect", model, "--const", "sr=16000", "--input", "x=float32[batch,3]")
    lines = ended.out.splitlines()
    assert lines[0] == "supported: yes, 1000 of 1000 nodes"
    assert len(lines) < 20
    assert lines[-2:] == [
        "next: relaxd compile net.onnx --input 'x=float32[batch,3]' --const sr=16000 "
        "--dim batch=1:64 -o out",
        "every node with its shapes: --nodes",
    ]
    assert relaxd("inspect", model, "--nodes").out.count("Relu") == 1001
    unbounded = relaxd("inspect", model, "--dim", "batch=1:").out.splitlines()[-2]
    assert unbounded == "next: relaxd compile net.onnx --dim batch=1: -o out"


def test_inspect_of_a_model_that_lacks_a_declaration_says_so_first(
    relaxd: Any, model: str, child: list[InspectJob]
) -> None:
    Path(model).write_bytes(b"undeclared")
    lines = relaxd("inspect", model).out.splitlines()
    assert lines[:3] == [
        "supported: not as declared, though every operator is known",
        "error: the type of 'x' is not known",
        " hint: declare it: --input x=float32[n]",
    ]
    assert not any(line.startswith("next:") for line in lines)


def test_a_dump_goes_where_the_command_says(
    relaxd: Any, model: str, child: list[CompileJob]
) -> None:
    assert relaxd("compile", model, "--dump", "phases").code == 0
    assert Path("phases", DUMP_START).exists()
    Path("phases/kernels").mkdir()
    Path("phases/kernels/old.py").write_text("# of another model")
    assert relaxd("compile", model, "--dump", "phases").code == 0, "an older dump is replaced"
    assert not Path("phases/kernels").exists()
    assert relaxd("compile", model, "--option", "dump=true").code == 0
    assert Path("out.dump", DUMP_START).exists()
    assert relaxd("compile", model).code == 0
    assert [job.dump is not None for job in child] == [True, True, True, False]


def test_a_dump_is_not_written_over_a_folder_of_something_else(
    relaxd: Any, model: str, child: list[CompileJob]
) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("precious")
    ended = relaxd("compile", model, "--dump", "mine")
    assert ended.code != 0
    assert "already holds other files" in ended.err
    assert Path("mine/thesis.tex").exists()
    assert child == []


def test_a_mismatch_leaves_its_reproducer_beside_the_output(
    relaxd: Any, model: str, child: list[CompileJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(job: CompileJob, **settings: Any) -> Manifest:
        child.append(job)
        raise mismatch(job)

    good = vars(api)["run_child"]
    monkeypatch.setattr(api, "run_child", fail)
    for _ in range(2):
        ended = relaxd("compile", model)
        assert ended.code == 1
        assert f"reproducer: {Path('out.reproducer').absolute()}" in ended.err
        assert Path("out.reproducer/model.onnx").exists()
        assert not Path("out").exists()
    monkeypatch.setattr(api, "run_child", good)
    assert relaxd("compile", model).code == 0
    assert not Path("out.reproducer").exists()
    Path("out.reproducer").mkdir()
    Path("out.reproducer/thesis.tex").write_text("precious")
    assert relaxd("compile", model).code == 0
    assert child[-1].reproducer is None
    assert Path("out.reproducer/thesis.tex").exists()


def test_a_bundle_says_how_it_was_verified(
    relaxd: Any, model: str, child: list[CompileJob]
) -> None:
    lines = relaxd("compile", model, "--dim", "w=8:", "--dim", "n=1:4").out.splitlines()
    assert lines[0].startswith("native: out (")
    assert lines[0].endswith("), executed")
    assert lines[1] == "  warning: w has no maximum: verified up to 640; declare w=8:N"
    assert lines[2].strip().startswith("sha256:")
    line, digest = relaxd("compile", model, "--option", "verify=false").out.splitlines()
    assert digest.strip().startswith("sha256:")
    assert line.endswith("), unverified: options.verify is off")
    (result,) = relaxd("compile", model, "--dim", "w=8:", "--json").json["results"]
    assert (result["status"], result["verdict"]) == ("executed", "passed")
    assert result["warnings"] == ["w has no maximum: verified up to 640; declare w=8:N"]


def test_a_bundle_that_must_be_verified(relaxd: Any, model: str, child: list[CompileJob]) -> None:
    assert relaxd("compile", model, "--require-verified").code == 0
    Path("out/mine").touch()
    ended = relaxd("compile", model, "--require-verified", "--option", "verify=false")
    assert (ended.code, ended.out) == (1, "")
    why = "it is unverified: options.verify is off"
    assert f"error: native: the build is not verified: {why}" in ended.err
    assert "native: failed" in ended.err
    assert Path("out/mine").exists(), "the older bundle stays"
    wanted = ("--require-verified", "--option", "verify=false", "--json")
    (result,) = relaxd("compile", model, *wanted).json["results"]
    assert result["error"]["code"] == "verify.required"
    assert (result["error"]["status"], result["error"]["verdict"]) == ("unverified", "not_run")


def test_a_detached_compile_cannot_require_verification(relaxd: Any, model: str) -> None:
    ended = relaxd("compile", model, "--require-verified", "--detach", "--server", "http://0:1")
    assert ended.code == 2
    assert "--require-verified cannot be kept with --detach" in ended.err
