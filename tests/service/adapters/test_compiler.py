"""A process that compiles nothing knows the keys of one that does, by what that one reports."""

import json

import pytest

from compiler.targets import registry
from relaxd.contract.request import CompileRequest
from service.adapters.compiler import ChildCompiler
from service.domain import Kind

MODEL = "sha256:" + "1" * 64
TOOLS = {"tvm": "1", "pipeline": "p"}


WORKER = ChildCompiler(toolchain=lambda: TOOLS)
API = ChildCompiler(sources=lambda: "p")


@pytest.mark.parametrize("flavour", [None, "vm", "standalone"])
def test_the_key_is_that_of_the_worker(flavour: str | None) -> None:
    identity = json.loads(json.dumps(WORKER.identity()))
    options = {"flavour": flavour} if flavour else {}
    request = CompileRequest.of(dims={"n": "1:8%2"}, options=options)
    able = [t for t in registry() if t.device is None and (flavour or t.flavours[0]) in t.flavours]
    assert {"native", "x86-64-v3", "aarch64"} <= {target.name for target in registry()}
    for target in able:
        expected = WORKER.action_key(Kind.COMPILE, MODEL, request, target.name)
        assert API.known_key(MODEL, request, target.name, identity) == expected
    assert able


def test_what_depends_on_the_workers_installation_is_not_known() -> None:
    identity, request, known = WORKER.identity(), CompileRequest(), API.known_key
    assert known(MODEL, request, "cuda-sm80", identity) is None
    assert known(MODEL, request, "native", {**identity, "native": None}) is None
    other = {**identity, "toolchain": {**TOOLS, "pipeline": "of another release"}}
    assert known(MODEL, request, "x86-64-v3", other) is None
    assert known(MODEL, request, "x86-64-v3", {"another": "form"}) is None
    vm = CompileRequest.of(options={"flavour": "vm"})
    assert known(MODEL, vm, "wasm32", identity) is None
