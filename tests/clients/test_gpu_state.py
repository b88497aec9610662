"""Caches of a language model on WebGPU, by the npm package in headless Chromium, on its software
adapter, beside a library for this machine with the same calls.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import relaxd
from compiler import compile_model
from compiler.verify.emulation import browser as headless
from tests.clients.page_programs import ran
from tests.clients.test_state import CAPACITY, ENTRIES, FORMS, play, session

PROGRAM = Path(__file__).with_name("state_page.js")

pytestmark = [pytest.mark.slow, pytest.mark.long]


# WGSL reads no rows of 16 bits.
PLAIN = [name for name, (_, _, cache) in FORMS.items() if cache == "float32"]


@pytest.fixture(scope="module", params=PLAIN)
def bundles(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders `gpu` and `own`."""
    model, dims, _ = FORMS[request.param]
    folder = tmp_path_factory.mktemp(request.param)
    for name, target, verify in (("gpu", "webgpu", True), ("own", "native", False)):
        options = {"state": "lifted", "profile": False, "verify": verify}
        compile_model(model(), output=folder / name, target=target, dims=dims, options=options)
    return folder


def test_a_build_is_verified_where_a_page_can_run(bundles: Path) -> None:
    numerics = json.loads((bundles / "gpu" / "numerics.json").read_text())
    assert numerics["status"] == ("compiled_only" if headless.lacking() else "emulated")


def in_a_page(bundles: Path, page: Path, calls: list[Any], **options: int) -> Any:
    """Run a state with these options; returns each call's outputs."""
    document = {"options": options, "calls": calls}
    return ran(PROGRAM, bundles / "gpu", page, seconds=300, calls=document)


def test_steps_are_those_of_a_library_for_this_machine(bundles: Path, tmp_path: Path) -> None:
    free = [spec.name for spec in relaxd.load(bundles / "own").state(entries=1).free]
    calls = session(free)
    arguments = in_a_page(bundles, tmp_path / "page", calls, entries=ENTRIES, capacity=CAPACITY)
    wanted = play(bundles, calls)
    assert any("gave" in entry for entry in wanted)
    assert any(entry.get("code") == "run.capacity" for entry in wanted)
    for result, want in zip(arguments, wanted, strict=True):
        assert result.get("code") == want.get("code"), result
        if "code" not in want:
            assert result["lengths"] == want["lengths"]
        if want.get("gave"):
            assert result["gave"]["shape"] == want["gave"]["shape"]
            np.testing.assert_allclose(
                result["gave"]["data"], want["gave"]["data"], rtol=1e-4, atol=1e-4
            )


def test_entries_that_shaders_cannot_reach(bundles: Path, tmp_path: Path) -> None:
    free = [spec.name for spec in relaxd.load(bundles / "own").state(entries=1).free]
    calls = [["step", {free[0]: [1, 2]}, {"first": 1, "entries": 1}]]
    # A head has an odd number of rows of 64 bytes, an entry two heads.
    (result,) = in_a_page(bundles, tmp_path / "page", calls, entries=2, capacity=9)
    assert result["code"] == "run.input"
    assert "begins with entry 1" in result["message"]


def test_caches_that_no_buffer_holds(bundles: Path, tmp_path: Path) -> None:
    result = in_a_page(bundles, tmp_path / "page", [], entries=1 << 24, capacity=CAPACITY)
    assert result["code"] == "run.input"
    assert "a buffer of the adapter at most" in result["message"]
