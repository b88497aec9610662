import hashlib
from pathlib import Path
from typing import Any

import pytest

from compiler.errors import ImportFailed
from compiler.isolation.messages import CompileJob
from relaxd.contract.bundle.manifest import DUMP_START
from tests.service.fakes import mismatch
from tests.service.live import Live


def test_compile_pulls_every_target_into_its_folder(served: Any, model: str) -> None:
    command = [
        "compile",
        model,
        "--dim",
        "n=1:8",
        "--target",
        "x86-64-v2",
        "--target",
        "x86-64-v3",
        "-o",
        "out",
    ]
    ended = served(*command)
    assert ended.code == 0
    assert Path("out/x86-64-v3/model.so").read_bytes() == b"a modelx86-64-v3"
    assert "x86-64-v2: out/x86-64-v2" in ended.out
    assert "x86-64-v2: succeeded" in ended.err
    again = served(*command, "--json")
    assert again.json["builds"][0]["cached"] is True
    assert again.json["results"][0]["output"] == "out/x86-64-v2"
    assert "from the cache" in again.err


@pytest.fixture
def unsupported(api: Live, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(cancelled: object) -> None:
        nodes = [{"node": "/a", "op": "Odd"}, {"node": "/b", "op": "Odder"}]
        raise ImportFailed(
            "two operators are not supported",
            reason="unsupported_op",
            hint="replace them",
            nodes=nodes,
        )

    monkeypatch.setattr(api.compiler, "behaviour", fail)


def test_a_failed_compile_names_every_node(served: Any, model: str, unsupported: None) -> None:
    ended = served("compile", model, "--dim", "n=77", "--target", "native", "--target", "x86-64-v2")
    assert (ended.code, ended.out) == (1, "")
    assert "error: native: two operators are not supported" in ended.err
    assert "- node /a, op Odd" in ended.err
    assert "hint: replace them" in ended.err
    assert not Path("out").exists()
    error = served("compile", model, "--dim", "n=78", "--json").json["results"][0]["error"]
    assert (error["code"], error["nodes"][1]["node"]) == ("import.unsupported_op", "/b")


def test_inspect_shows_a_failure_of_the_model_as_one(
    served: Any, model: str, unsupported: None
) -> None:
    ended = served("inspect", model, "--dim", "n=79")
    assert ended.code == 1
    assert "stage import" in ended.err


def test_inspect(served: Any, model: str) -> None:
    digest = f"sha256:{hashlib.sha256(Path(model).read_bytes()).hexdigest()}"
    assert served("inspect", model).out == f"model: {digest}\nmodel bytes: 7\n"
    report = {"inputs": [], "model": digest, "model_bytes": 7}
    assert served("inspect", model, "--json").json == report


def test_detach_then_look_around(served: Any, model: str) -> None:
    job = served("compile", model, "--detach", "--dim", "n=2").out.strip()
    shown = served("compile", model, "--dim", "n=2", "-o", "now")
    assert shown.code == 0
    assert served("jobs", "list").out.splitlines()[0].split() == [
        "ID",
        "STATE",
        "MODEL",
        "TARGETS",
        "CREATED",
        "TOOK",
    ]
    assert job in served("jobs", "list", "--limit", "5").out
    assert job in [
        result["id"]
        for result in served("jobs", "list", "--state", "succeeded", "--json").json["jobs"]
    ]
    digest = served("jobs", "show", job, "--json").json["builds"][0]["artifact"]["digest"]
    shown = served("jobs", "show", job, columns=80).out.splitlines()
    assert f"native: {digest}" in shown, "whole, on a line of its own"
    assert served("jobs", "cancel", job, "--json").json["state"] == "succeeded"
    assert "succeeded" in served("jobs", "logs", job).out
    logs = served("jobs", "logs", job, "--json").json
    assert (logs["job"], logs["target"]) == (job, None)
    assert logs["lines"] == served("jobs", "logs", job).out.splitlines()
    pulled = served("pull", job, "-o", "pulled", "--json")
    assert pulled.json["output"] == "pulled"
    assert Path("pulled/model.so").exists()


def test_targets_count_the_workers(served: Any) -> None:
    assert "WORKERS" in served("targets").out
    assert {target["name"] for target in served("targets", "--json").json["targets"]} >= {
        "native",
        "x86-64-v3",
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["jobs", "show", "nonesuch"], "no job has the id"),
        (["pull", "sha256:" + "0" * 64], "no blob"),
        (["pull", "no such ref"], "names no artifact"),
    ],
)
def test_what_the_service_does_not_have(served: Any, arguments: list[str], says: str) -> None:
    ended = served(*arguments)
    assert ended.code == 2
    assert says in ended.err


def test_a_bundle_is_not_written_over_a_folder_of_something_else(served: Any, model: str) -> None:
    Path("mine").mkdir()
    Path("mine/thesis.tex").write_text("precious")
    ended = served("compile", model, "--dim", "n=3", "-o", "mine")
    assert ended.code == 2
    assert "already holds other files" in ended.err


def test_a_dump_is_pulled_beside_the_bundles(served: Any, model: str) -> None:
    targets = ["--target", "x86-64-v2", "--target", "x86-64-v3"]
    command = ["compile", model, "--dim", "n=1:9", *targets, "-o", "out"]
    assert served(*command, "--dump", "dumps").code == 0
    for target in ("x86-64-v2", "x86-64-v3"):
        assert Path(f"dumps/{target}/{DUMP_START}").exists()
        assert Path(f"out/{target}/model.so").exists()
    assert served(*command, "--option", "dump=true").code == 0
    assert Path(f"out.dump/x86-64-v3/{DUMP_START}").exists()


def test_the_reproducer_of_a_mismatch_is_pulled_beside_the_output(
    served: Any, model: str, api: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(cancelled: object) -> None:
        job = api.compiler.jobs[-1]
        assert isinstance(job, CompileJob)
        raise mismatch(job)

    monkeypatch.setattr(api.compiler, "behaviour", fail)
    targets = ["--target", "x86-64-v2", "--target", "x86-64-v3"]
    ended = served("compile", model, "--dim", "n=1:81", *targets, "--json")
    assert ended.code == 1
    for result, target in zip(ended.json["results"], targets[1::2], strict=True):
        folder = Path(f"out/{target}.reproducer")
        assert result["error"]["reproducer"] == str(folder)
        assert (folder / "model.onnx").read_bytes() == b"a node"
    again = served("compile", model, "--dim", "n=1:82", "-o", "other")
    assert "at: stage verify, node n, op Add" in again.err
    assert "reproducer: other.reproducer" in again.err
    (build,) = served("compile", model, "--dim", "n=1:82", "--json").json["builds"]
    digest = build["error"]["details"]["reproducer"]["digest"]
    tar = api.http.get(f"/v1/artifacts/{digest}", headers={"Accept": "application/x-tar"})
    assert tar.status_code == 200
    assert b"a node" in tar.content
    assert served("compile", model, "--dim", "n=1:83", "-o", "other").code == 1, "it is replaced"
    Path("mine.reproducer").mkdir()
    Path("mine.reproducer/thesis.tex").write_text("precious")
    retained = served("compile", model, "--dim", "n=1:84", "-o", "mine")
    assert "reproducer: relaxd/bundles@sha256:" in retained.err
    assert Path("mine.reproducer/thesis.tex").exists()


def test_a_job_says_how_its_builds_were_verified(served: Any, model: str) -> None:
    warning = "warning: w has no maximum: verified up to 640; declare w=1:N"
    ended = served("compile", model, "--dim", "w=1:", "--json")
    document = ended.json
    assert document["builds"][0]["numerics"]["warnings"] == [warning.removeprefix("warning: ")]
    assert document["results"][0]["status"] == "executed"
    again = served("compile", model, "--dim", "w=1:").out.splitlines()
    assert again[0].endswith("), executed")
    assert again[1] == f"  {warning}"
    shown = served("jobs", "show", document["id"]).out.splitlines()
    assert shown[-1] == f"native: {warning}"
    assert "executed" in shown[4].split()


def test_a_build_of_a_service_that_must_be_verified(served: Any, model: str) -> None:
    command = ["compile", model, "--dim", "n=5", "--require-verified", "-o", "out"]
    ended = served(*command, "--option", "verify=false")
    assert (ended.code, ended.out) == (1, "")
    assert "error: native: the build is not verified: it is unverified" in ended.err
    assert not Path("out").exists()
    assert served(*command).code == 0
    assert Path("out/model.so").exists()
