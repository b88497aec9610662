"""Stand-ins that tests steer: a compiler without processes, a doorbell that lists, a clock that
waits.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.errors import VerifyError
from compiler.host.capabilities import Capabilities
from compiler.isolation.messages import ChildJob, CompileJob, Event, Log, StageStarted
from compiler.isolation.starting import Limits
from compiler.isolation.usage import OnUsage, StageUsage
from compiler.targets import Target, registry, resolve
from compiler.toolchain.objects import KernelObjects
from relaxd.contract.action import ActionKey
from relaxd.contract.bundle.manifest import (
    DUMP_START,
    REPRODUCER_START,
    FileEntry,
    LoadContract,
    Manifest,
)
from relaxd.contract.request import CompileRequest
from relaxd.contract.states import Stage
from service.domain import Kind

Behaviour = Callable[[Callable[[], bool]], None]


@dataclass
class FakeClock:
    """Seconds that pass only when told to."""

    now: float = 1_700_000_000.0

    def __call__(self) -> float:
        return self.now

    def advance(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class FakeDoorbell:
    """Lists the rings; `silent` loses them."""

    rings: list[str] = field(default_factory=list)
    silent: bool = False
    trouble: str | None = None

    def ring(self, build_id: str, capability: str) -> None:
        if not self.silent:
            self.rings.append(build_id)


@dataclass
class FakeCompiler:
    """Writes a small bundle; `behaviour` is called first, with the way to ask whether to stop, and
    may raise.
    """

    behaviour: Behaviour = lambda cancelled: None
    jobs: list[ChildJob] = field(default_factory=list)

    def targets(self) -> tuple[Target, ...]:
        return registry()

    def capabilities(self) -> Capabilities:
        return Capabilities(tuple(target.name for target in registry()))

    def capability(self, target: str) -> str:
        return resolve(target).capability

    def check(self, target: str) -> None:
        resolve(target)

    def action_key(self, kind: Kind, model: str, request: CompileRequest, target: str) -> ActionKey:
        return key_of(kind, model, request, target)

    def identity(self) -> dict[str, Any]:
        return {"fake": True}

    def known_key(
        self, model: str, request: CompileRequest, target: str, identity: Mapping[str, Any]
    ) -> ActionKey | None:
        return key_of(Kind.COMPILE, model, request, target) if identity == {"fake": True} else None

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
        self.jobs.append(job)
        on_event(StageStarted(Stage.IMPORT))
        on_event(Log("compiling"))
        on_usage(StageUsage(Stage.IMPORT, 1.5, 3e9, 2.0))
        self.behaviour(cancelled)
        if isinstance(job, CompileJob):
            return write_bundle(job, Path(job.output))
        return {"inputs": [], "model_bytes": len(_model_in(job))}


def key_of(kind: Kind, model: str, request: CompileRequest, target: str) -> ActionKey:
    """The key that the fake compiler gives to a build."""
    declared = request.to_json()
    del declared["options"]["dump"]
    return ActionKey(
        {
            "kind": kind.value,
            "model": model,
            "request": declared,
            "target": resolve(target).name,
        }
    )


def mismatch(job: CompileJob) -> VerifyError:
    """The failure of a build whose library is wrong, after it left the job's reproducer."""
    folder = Path(str(job.reproducer))
    folder.mkdir()
    (folder / REPRODUCER_START).write_text("{}")
    (folder / "model.onnx").write_bytes(b"a node")
    return VerifyError(
        "off at 'n'",
        reason="mismatch",
        node="n",
        op="Add",
        bisection={"node": "n", "nodes": 1},
        reproducer=str(folder),
    )


def write_bundle(job: CompileJob, folder: Path) -> Manifest:
    """A bundle in `folder` whose library is the model's bytes and the target's name, verified up to
    640 as far as its request wants it.
    """
    folder.mkdir(exist_ok=True)
    (folder / "model.so").write_bytes(_model_in(job) + job.target.encode())
    (folder / "numerics.json").write_text(json.dumps(_numerics(job)))
    request = CompileRequest.from_json(job.request)
    key = key_of(Kind.COMPILE, str(job.model_digest), request, job.target)
    manifest = Manifest(
        job.model_name,
        (),
        (),
        (),
        {"name": job.target},
        LoadContract("x86_64"),
        key.to_json(),
        {},
        files={path.name: _entry(path) for path in folder.iterdir()},
    )
    (folder / "manifest.json").write_text(json.dumps(manifest.to_json()))
    (folder / "profile.json").write_text(json.dumps({"measured": True, "load_ms": 7.0}))
    if job.dump:
        Path(job.dump).mkdir(exist_ok=True)
        (Path(job.dump) / DUMP_START).write_text("# a module")
    return manifest


def _model_in(job: ChildJob) -> bytes:
    """The bytes of a job's model; of a folder, those of its files in the order of their names."""
    path = Path(job.model)
    files = sorted(one for one in path.rglob("*") if one.is_file()) if path.is_dir() else [path]
    return b"".join(file.read_bytes() for file in files)


def _entry(path: Path) -> FileEntry:
    content = path.read_bytes()
    return FileEntry(hashlib.sha256(content).hexdigest(), len(content))


def _numerics(job: CompileJob) -> dict[str, Any]:
    request = CompileRequest.from_json(job.request)
    if not request.options.verify:
        reason = "options.verify is off"
        return {"verdict": "not_run", "status": "unverified", "reason": reason}
    return {
        "verdict": "passed",
        "status": "executed",
        "warnings": [
            f"{dim.name} has no maximum: verified up to 640; declare {dim.name}={dim.lowest}:N"
            for dim in request.dims
            if dim.highest is None
        ],
    }
