"""Builds of a registered model over its versions, and what changed between them."""

import json
from dataclasses import asdict

import pytest

from artifacts.attestations import PROFILE, attach
from artifacts.oci import publish_bundle
from compiler.isolation.messages import CompileJob
from relaxd.contract.bundle.profile import Profile, ReferenceLatency, TimedPoint
from relaxd.contract.request import CompileRequest
from service.identity import DEFAULT
from service.usecases.registry import measuring, models
from service.usecases.registry.measuring import list_builds
from service.usecases.store import holdings
from tests.service.fakes import write_bundle


@pytest.fixture
def build(core, tmp_path):
    """Publish a bundle of a request; its digest."""

    def publish(target="x86-64-v3", precision="float32", ms=None):
        folder = tmp_path / f"{target}-{precision}"
        folder.mkdir()
        (folder / "model.onnx").write_bytes(b"a model")
        request = CompileRequest.of(options={"precision": precision}).to_json()
        job = CompileJob(str(folder / "model.onnx"), request, target, str(folder), "m")
        write_bundle(job, folder)
        (folder / "profile.json").unlink()
        view = holdings.view(core, DEFAULT)
        digest = publish_bundle(view.blobs, folder).digest
        if ms is not None:
            attach(view, PROFILE, profile(ms), digest)
        return digest

    return publish


def profile(ms):
    """Measured at two points, of which the second is the favoured one."""
    reference = ReferenceLatency(2 * ms, ms, ms, ms, ms, 1, engine="onnxruntime")
    points = tuple(
        TimedPoint(time, time, time, time, time, 1, label=label, dims={"n": n}, reference=reference)
        for label, n, time in (("min", 1, ms / 10), ("opt", 8, ms))
    )
    return json.dumps(asdict(Profile(True, measured_at="2026-01-02", points=points))).encode()


def register(core, digest):
    return models.register(core, DEFAULT, "net", digest=digest, submitter="ci")


def test_versions_have_the_latency_at_the_favoured_sizes_and_what_changed(core, build):
    register(core, build(ms=4.0))
    register(core, build(precision="int8", ms=3.0))
    newest, first = list_builds(core, DEFAULT, "net")
    assert (newest.version, newest.latency_ms, newest.dims) == (2, 3.0, {"n": 8})
    assert (newest.reference_ms, newest.status, newest.target) == (6.0, "executed", "x86-64-v3")
    (changed,) = newest.changed
    assert changed.part.endswith("precision")
    assert (changed.have, changed.want) == ("float32", "int8")
    assert (first.version, first.changed) == (1, None)


def test_a_page_of_versions_knows_the_one_before(core, build):
    for precision in ("float32", "bfloat16", "int8"):
        register(core, build(precision=precision))
    (newest,) = list_builds(core, DEFAULT, "net", limit=1)
    assert [(one.have, one.want) for one in newest.changed] == [("bfloat16", "int8")]
    (older,) = list_builds(core, DEFAULT, "net", before=3, limit=1)
    assert [(one.have, one.want) for one in older.changed] == [("float32", "bfloat16")]


def test_a_target_is_compared_with_its_own_build_of_an_older_version(core, build):
    register(core, build())
    register(core, build(target="aarch64"))
    register(core, build(precision="int8"))
    newest, arm, _ = list_builds(core, DEFAULT, "net")
    assert (arm.target, arm.changed) == ("aarch64", None)
    assert [one.want for one in newest.changed] == ["int8"]


def test_what_is_no_bundle_is_listed_with_the_reason(core):
    register(core, holdings.view(core, DEFAULT).blobs.put(b"no bundle").digest)
    (shown,) = list_builds(core, DEFAULT, "net")
    assert (shown.version, shown.latency_ms, shown.changed) == (1, None, None)
    assert shown.problem


def test_a_profile_that_comes_later_shows_once_the_look_is_old(core, build, monkeypatch):
    digest = build()
    register(core, digest)
    assert list_builds(core, DEFAULT, "net")[0].latency_ms is None
    attach(holdings.view(core, DEFAULT), PROFILE, profile(4.0), digest)
    assert list_builds(core, DEFAULT, "net")[0].latency_ms is None
    monkeypatch.setattr(measuring, "REMEMBERED_S", 0.0)
    assert list_builds(core, DEFAULT, "net")[0].latency_ms == 4.0
