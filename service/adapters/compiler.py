"""The compiler package as the service's use cases see it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from compiler.host.capabilities import Capabilities, capabilities
from compiler.host.prepare import prepare
from compiler.isolation.child import run_child
from compiler.isolation.messages import ChildJob, CompileJob, Event
from compiler.isolation.starting import Limits
from compiler.isolation.usage import OnUsage
from compiler.key import Description, action_key, key_of
from compiler.targets import NATIVE, Target, names, registry, resolve
from compiler.toolchain.objects import KernelObjects
from compiler.toolchain.versions import pipeline_digest, versions
from relaxd.contract.action import ActionKey
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.request import CompileRequest
from service.domain import Kind


@lru_cache(maxsize=256)
def _described(target: str) -> Description | None:
    """A target that is the same on every machine; raises UnknownTarget."""
    resolved = resolve(target)
    return Description.of(resolved) if resolved.device is None else None


@dataclass(frozen=True)
class ChildCompiler:
    """Implements `service.core.Compiler`; `command` replaces `python -m compiler`; `toolchain` is
    asked where work is done, `sources` also where none is.
    """

    command: tuple[str, ...] | None = None
    toolchain: Callable[[], Mapping[str, str]] = versions
    sources: Callable[[], str] = pipeline_digest

    def targets(self) -> tuple[Target, ...]:
        """Every known target; `native` is this machine's."""
        return registry()

    def capabilities(self) -> Capabilities:
        """Tell what this machine can compile, emulate and execute."""
        return capabilities()

    def capability(self, target: str) -> str:
        """The capability that a worker needs for a name or a raw target; raises UnknownTarget."""
        return target if target in names() else resolve(target).capability

    def check(self, target: str) -> None:
        """Raise UnknownTarget for a name that is not known."""
        # `native` need not exist on this machine: a worker's counts.
        if target not in names():
            resolve(target)

    def action_key(self, kind: Kind, model: str, request: CompileRequest, target: str) -> ActionKey:
        """The key of a build; an inspection's leaves out what only builds depend on."""
        if kind is Kind.COMPILE:
            return action_key(model, request, resolve(target), dict(self.toolchain()))
        declared = {
            name: part
            for name, part in request.to_json().items()
            if name not in ("targets", "options", "samples")
        }
        return ActionKey(
            {
                "kind": kind.value,
                "model": model,
                "request": declared,
                "toolchain": dict(self.toolchain()),
            }
        )

    def identity(self) -> dict[str, Any]:
        """The versions of the tools, and what `native` is here."""
        native = next((target for target in registry() if target.name == NATIVE), None)
        return {
            "toolchain": dict(self.toolchain()),
            "native": Description.of(native).to_json() if native else None,
        }

    def known_key(
        self, model: str, request: CompileRequest, target: str, identity: Mapping[str, Any]
    ) -> ActionKey | None:
        """Compute `action_key` from what another machine reports. Its sources have to be those of
        this process, by which keys are made and targets described. Devices depend on what is
        installed there.
        """
        toolchain = identity.get("toolchain", {})
        if toolchain.get("pipeline") != self.sources():
            return None
        if target == NATIVE:
            reported = identity.get("native")
            described = Description.from_json(reported) if reported else None
        else:
            described = _described(target)
        if described is None:
            return None
        flavour = request.options.flavour or described.flavours[0]
        if flavour not in described.flavours:
            return None
        return key_of(model, request, described, flavour, toolchain)

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
        """Do the job in a fresh process; raises compiler.errors.CompileError."""
        if isinstance(job, CompileJob) and self.command is None:
            options = CompileRequest.from_json(job.request).options
            prepare(resolve(job.target), options, kernels=kernels is not None)
        return run_child(
            job,
            on_event=on_event,
            cancelled=cancelled,
            limits=limits,
            command=self.command,
            kernels=kernels,
            on_usage=on_usage,
        )
