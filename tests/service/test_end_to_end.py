"""A model goes in, two real workers compile it, and the bundle runs and agrees with numpy."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxd
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import State
from service.domain import EventType
from tests.support.bundles import fetch

pytestmark = pytest.mark.slow

PATIENCE_S = 120
WORKER = "service.workers"


def tiny(op: str = "Relu") -> bytes:
    """z = op(x) + x over float32[n, 8]."""
    nodes = [helper.make_node(op, ["x"], ["y"]), helper.make_node("Add", ["y", "x"], ["z"])]
    value = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 8]) for name in "xz"
    }
    graph = helper.make_graph(nodes, "tiny", [value["x"]], [value["z"]])
    return onnx.ModelProto.SerializeToString(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    )


def test_a_model_becomes_a_bundle_that_runs(services, start, tmp_path):
    start(WORKER), start(WORKER)
    model = services.store.blobs.put(tiny()).digest
    request = CompileRequest.of(dims={"n": "1:64"}, targets=("native", "x86-64-v2"))
    job = services.jobs.wait(services.jobs.submit(model, request).id, PATIENCE_S)
    assert job.state is State.SUCCEEDED, [build.error for build in job.builds]
    stages = [
        event.data["stage"]
        for event in services.jobs.events(job.id)
        if event.type is EventType.BUILD_STAGE and event.target == "native"
    ]
    assert (stages[0], stages[-1]) == ("load", "publish")
    for build in job.builds:
        assert build.profile
        assert build.numerics
        fetch(services.store.blobs, build.artifact.digest, tmp_path / build.target)
        loaded = relaxd.load(tmp_path / build.target)
        x = np.linspace(-1, 1, 24, dtype="float32").reshape(3, 8)
        np.testing.assert_allclose(loaded.run({"x": x})["z"], np.maximum(x, 0) + x, rtol=1e-6)
    again = services.jobs.wait(services.jobs.submit(model, request).id, PATIENCE_S)
    assert [(build.cached, build.artifact) for build in again.builds] == [
        (True, build.artifact) for build in job.builds
    ]


@pytest.mark.parametrize("deployment", ["embedded"], indirect=True)
def test_inspection_and_failure_name_the_operator_at_fault(services, start):
    start(WORKER)
    model = services.store.blobs.put(tiny("NoSuchOperator")).digest
    job = services.jobs.wait(services.jobs.inspect(model, CompileRequest()).id, PATIENCE_S)
    report = services.jobs.report(job, PATIENCE_S)
    assert "NoSuchOperator" in str(report)
    job = services.jobs.wait(services.jobs.submit(model, CompileRequest()).id, PATIENCE_S)
    assert job.state is State.FAILED
    assert (job.builds[0].error.stage, job.builds[0].error.op) == ("import", "NoSuchOperator")


@pytest.mark.parametrize("deployment", ["embedded"], indirect=True)
def test_what_is_not_a_model_is_refused_with_a_code(services, start):
    start(WORKER)
    model = services.store.blobs.put(tiny()[:40]).digest
    job = services.jobs.wait(services.jobs.submit(model, CompileRequest()).id, PATIENCE_S)
    assert job.builds[0].error.code.startswith("load.")
