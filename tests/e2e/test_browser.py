"""A page in headless Chromium pulls a model by digest from a service, checks it, runs it at several
shapes, in WebAssembly and on WebGPU, and agrees with ONNX Runtime.
"""

import re
from pathlib import Path

import pytest

import relaxd
from compiler.verify.emulation import browser as headless
from tests.support.models.small import WIDTH, perceptron, reference
from tests.support.servers import missing
from tools.browser import chromium
from tools.browser.checking import Point, origins, plan, watch

pytestmark = pytest.mark.slow

DIMS = {"batch": "1:4", "seq": "1:64"}
SHAPES = ((1, 1), (1, 7), (2, 13), (3, 64), (4, 33))
PAGES = (
    ("wasm32-simd", "", False, "threads None"),
    ("wasm32-simd", "?in=page", True, "threads None"),
    ("wasm32-threads", "", True, "threads 2$"),
    ("wasm32-threads", "?in=page", True, "threads 2$"),
    ("wasm32-threads", "", False, "threads 1: the page is not cross-origin isolated"),
    ("webgpu", "", True, "threads None"),
)
"""Target, query of the page, whether it is isolated, and what it says of threads."""


def points() -> list[Point]:
    import numpy as np

    draw, result = np.random.default_rng(0), []
    for batch, seq in SHAPES:
        inputs = {"x": draw.standard_normal((batch, seq, WIDTH)).astype("float32")}
        (want,) = reference(perceptron(), inputs)
        result.append(Point({"batch": batch, "seq": seq}, inputs, {"y": want}))
    return result


def test_a_page_pulls_checks_and_runs_a_model(tmp_path: Path) -> None:
    program = chromium.find()
    if program is None:
        missing("Chromium", "apt-get install chromium")
    with origins(tmp_path) as (pages, server), relaxd.Client(server) as client:
        job = client.compile(
            perceptron().SerializeToString(),
            dims=DIMS,
            targets=["wasm32-simd", "wasm32-threads", "webgpu"],
            options={"profile": False},
        )
        builds = {build["target"]: build for build in job.wait().builds}
        assert [build["error"] for build in builds.values()] == [None] * 3
        for target in ("wasm32-simd", "wasm32-threads"):
            assert builds[target]["numerics"]["status"] == "executed"
        ran = "compiled_only" if headless.lacking() else "emulated"
        assert builds["webgpu"]["numerics"]["status"] == ran
        for target, where, isolated, message in PAGES:
            pages.isolated = isolated
            reference_of = builds[target]["artifact"]["ref"]
            plan(pages, server, reference_of, points(), overlap=target == "webgpu", threads=2)
            seen = watch(program, f"{pages.url}/{where}", seconds=120)
            assert (seen.state, seen.wrong) == ("near", ())
            assert len(seen.rows) == len(SHAPES)
            assert re.search(message, f"threads {seen.facts.get('threads')}")
        assert "adapter" in seen.facts
        assert "emulated" in seen.facts["adapter"]
        # What is not what the digest says is refused.
        plan(pages, server, reference_of[:-1] + "01"[reference_of.endswith("0")], points())
        assert watch(program, pages.url, seconds=120).state == "wrong"
