"""The dependencies of every use case: database, store, compiler, doorbell, clock, settings."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from artifacts.store import Artifacts
from compiler.host.capabilities import Capabilities
from compiler.isolation.messages import ChildJob, Event
from compiler.isolation.starting import Limits
from compiler.isolation.usage import OnUsage
from compiler.targets import Target
from compiler.toolchain.objects import KernelObjects
from relaxd.contract.action import ActionKey
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.request import CompileRequest
from relaxd.provenance.keys import Signer
from service.db.engine import Database
from service.db.transaction import Transaction
from service.domain import Kind
from service.recent import Recent
from service.settings import Settings
from service.tracing import NO_TRACER, Tracer


class Doorbell(Protocol):
    """Notifies some worker that a build waits; a ring may be lost or arrive twice."""

    @property
    def trouble(self) -> str | None:
        """Why the last ring did not reach the broker; None where it did."""

    def ring(self, build_id: str, capability: str) -> None:
        """Ring for a build that asks for that capability; never raises for a broker that
        is away, nor waits for one.
        """


class Compiler(Protocol):
    """The compiler as the service sees it."""

    def targets(self) -> tuple[Target, ...]:
        """Every known target; `native` is this machine's."""

    def capabilities(self) -> Capabilities:
        """Tell what this machine can compile, emulate and execute."""

    def capability(self, target: str) -> str:
        """The capability that a worker needs to compile for a name or a raw target; raises
        compiler.errors.UnknownTarget.
        """

    def check(self, target: str) -> None:
        """Raise compiler.errors.UnknownTarget for a name that is not known."""

    def action_key(self, kind: Kind, model: str, request: CompileRequest, target: str) -> ActionKey:
        """The identity of the work on this machine; raises compiler.errors.CompileError."""

    def identity(self) -> dict[str, Any]:
        """Describe everything that decides action keys on this machine, as JSON for `known_key`;
        raises compiler.errors.CompileError.
        """

    def known_key(
        self, model: str, request: CompileRequest, target: str, identity: Mapping[str, Any]
    ) -> ActionKey | None:
        """The key that `action_key` gives the compilation on a machine of that identity; None where
        only that machine can tell.
        """

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
        """Do the job in a child process; raises compiler.errors.CompileError.

        kernels: those of earlier builds, to be read and added to. on_usage: told of each stage's
        use of the machine, however the job ended.
        """


@dataclass(frozen=True)
class Core:
    """The parts, chosen in `service.bootstrap`; `clock` is seconds since the epoch;
    `signer` opens the key that signs provenance, which workers alone read; `tracer` is off unless
    the settings ask for traces; `recent` is this process's memory.

    Leases compare clocks of several machines: skew costs repeated work, never a wrong result, since
    fences decide.
    """

    settings: Settings
    db: Database
    store: Artifacts
    compiler: Compiler
    doorbell: Doorbell
    clock: Callable[[], float]
    signer: Callable[[], Signer | None] = lambda: None
    tracer: Tracer = NO_TRACER
    recent: Recent = field(default_factory=Recent)

    @contextmanager
    def reading(self) -> Iterator[Transaction]:
        """A transaction that only reads."""
        with self.db.read() as connection:
            yield Transaction(connection, self.clock(), writes=False)

    @contextmanager
    def writing(self) -> Iterator[Transaction]:
        """A transaction that commits at the end of the block."""
        with self.db.write() as connection:
            yield Transaction(connection, self.clock(), writes=True)

    @contextmanager
    def writing_at_once(self) -> Iterator[Transaction]:
        """A transaction for `service.db.creating`, whose one statement is one by itself."""
        with self.db.write_at_once() as connection:
            yield Transaction(connection, self.clock(), writes=True)
