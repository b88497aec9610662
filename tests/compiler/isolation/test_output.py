import json
import os
from pathlib import Path

import pytest

from compiler.errors import CompileCrashed, LoadError
from compiler.isolation import output
from compiler.isolation.messages import CompileJob


@pytest.fixture
def job(tmp_path: Path) -> CompileJob:
    job = CompileJob("m.onnx", {}, "native", str(tmp_path / "out"), "m", dump=str(tmp_path / "d"))
    output.begin(job)
    (output.partial_of(job) / "manifest.json").write_text(json.dumps({"name": "m"}))
    return job


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to another user")
def test_what_another_user_left_is_ours(job: CompileJob, tmp_path: Path) -> None:
    inner = output.partial_of(job) / "inner"
    inner.mkdir()
    (inner / "link").symlink_to(tmp_path / "other")
    (tmp_path / "other").write_text("x")
    paths = [output.partial_of(job), inner, inner / "link", tmp_path / "other"]
    for path in paths:
        os.chown(path, 0x70000001, 0x70000001, follow_symlinks=False)
    output.take_over((output.partial_of(job), tmp_path / "absent"))
    assert [path.lstat().st_uid for path in paths] == [0, 0, 0, 0x70000001], "no link is followed"


def test_plain_files_pass_and_are_published(job: CompileJob) -> None:
    (Path(job.dump or "") / "kernels").mkdir()
    output.check(job, {"name": "m"})
    output.deliver(job)
    assert (Path(job.output) / "manifest.json").is_file()


@pytest.mark.parametrize("where", ["bundle", "dump", "below"])
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe"])
def test_what_leads_elsewhere_is_refused(
    job: CompileJob, tmp_path: Path, kind: str, where: str
) -> None:
    (tmp_path / "secret").write_text("x")
    folder = Path(job.dump or "") if where == "dump" else output.partial_of(job)
    if where == "below":
        folder = folder / "below"
        folder.mkdir()
    match kind:
        case "link":
            (folder / "model.so").symlink_to(tmp_path / "secret")
        case "hard link":
            os.link(tmp_path / "secret", folder / "model.so")
        case "pipe":
            os.mkfifo(folder / "model.so")
    with pytest.raises(CompileCrashed, match=r"'model\.so', which is not a regular file"):
        output.check(job, {"name": "m"})


@pytest.mark.parametrize("written", ['{"name": "other"}', "{", None])
def test_another_manifest_than_the_reported_one(job: CompileJob, written: str | None) -> None:
    path = output.partial_of(job) / "manifest.json"
    path.unlink() if written is None else path.write_text(written)
    with pytest.raises(CompileCrashed, match="manifest"):
        output.check(job, {"name": "m"})


def test_an_output_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(LoadError, match="cannot be written"):
        output.begin(CompileJob("m.onnx", {}, "native", str(tmp_path / "file" / "out"), "m"))
