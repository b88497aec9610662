"""Profiles of small builds."""

import json
from pathlib import Path

from compiler import build
from compiler.isolation.messages import CompileJob
from relaxd.contract.request import CompileRequest
from tests.compiler.graphs import add_and_divide


def test_sizes_that_the_model_refuses_are_left_out(tmp_path: Path) -> None:
    """The model adds eight rows to `batch` rows, so that it takes one or eight."""
    (tmp_path / "m.onnx").write_bytes(add_and_divide(rows=8).SerializeToString())
    request = CompileRequest.of(dims={"batch": (1, 9)}, options={"verify": False}).to_json()
    build.build(CompileJob(str(tmp_path / "m.onnx"), request, "native", str(tmp_path / "out"), "m"))
    profile = json.loads((tmp_path / "out" / "profile.json").read_text())
    assert {point["dims"]["batch"] for point in profile["points"]} == {1}
    refused = profile["left_out"]
    assert 9 in {point["dims"]["batch"] for point in refused}
    assert all("operands do not broadcast" in point["reason"] for point in refused)
