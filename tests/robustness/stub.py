"""A compiler without a process of its own: it does what the model's text says, a JSON document with
`ledger`, a file that gets a line for each compile, and `seconds` to take.
"""

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from compiler.errors import CompileCancelled, CompileCrashed
from compiler.host.capabilities import Capabilities
from compiler.isolation.messages import ChildJob, CompileJob, Event, Log, StageStarted
from compiler.isolation.starting import Limits
from compiler.isolation.usage import OnUsage
from compiler.toolchain.objects import KernelObjects
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.states import Stage
from service.adapters.compiler import ChildCompiler
from tests.service.fakes import write_bundle

TARGETS = ("native", "x86-64-v2", "x86-64-v3", "aarch64")


def model(ledger: Path, seconds: float = 0.0, **more: Any) -> bytes:
    """The text of a model. `crash` is `worker` where a compile kills its worker, `child` where its
    own process is killed; `key` makes equal models differ; `gate` is a file that a compile waits
    for.
    """
    return json.dumps({"ledger": str(ledger), "seconds": seconds, **more}).encode()


class StubCompiler(ChildCompiler):
    """No two of its bundles are equal, so that one published twice is seen."""

    def __init__(self) -> None:
        super().__init__(toolchain=toolchain, sources=lambda: "stub")

    def capabilities(self) -> Capabilities:
        return Capabilities(TARGETS)

    def run(
        self,
        job: ChildJob,
        *,
        on_event: Callable[[Event], None],
        cancelled: Callable[[], bool],
        limits: Limits,
        kernels: KernelObjects | None = None,
        on_usage: OnUsage = lambda usage: None,
    ) -> Manifest | dict[str, Any]:
        assert isinstance(job, CompileJob)
        text = json.loads(Path(job.model).read_text())
        on_event(StageStarted(Stage.CODEGEN))
        on_event(Log("compiling"))
        with open(text["ledger"], "a") as ledger:
            ledger.write(f"{text.get('key', '')} {os.getpid()}\n")
        _crash(text.get("crash"))
        _wait(text["seconds"], text.get("gate"), cancelled)
        Path(job.model).write_text(json.dumps({**text, "compile": uuid.uuid4().hex}))
        return write_bundle(job, Path(job.output))


def toolchain() -> Mapping[str, str]:
    return {"pipeline": "stub"}


def _crash(what: str | None) -> None:
    if what == "worker":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "child":
        raise CompileCrashed("died of SIGKILL", reason="crashed", retryable=True)


def _wait(seconds: float, gate: str | None, cancelled: Callable[[], bool]) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end or (gate and not Path(gate).exists()):
        if cancelled():
            raise CompileCancelled("stopped", reason="cancelled", stage=Stage.CODEGEN)
        time.sleep(0.02)
