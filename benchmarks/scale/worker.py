"""A worker process whose compiler writes a small bundle at once, in place of compiling."""

import sys
from collections.abc import Callable
from pathlib import Path

from compiler.host.capabilities import Capabilities
from compiler.isolation.messages import ChildJob, CompileJob, Event, Log, StageStarted
from compiler.isolation.starting import Limits
from compiler.isolation.usage import OnUsage
from compiler.targets import registry
from compiler.toolchain.objects import KernelObjects
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.states import Stage
from service.adapters.compiler import ChildCompiler
from service.bootstrap import build
from service.observability import logs
from service.settings import Settings
from service.workers.main import serve
from tests.service.fakes import write_bundle


class StubCompiler(ChildCompiler):
    """Has the action keys of the compiler."""

    def capabilities(self) -> Capabilities:
        """The capabilities of a machine that compiles everything."""
        return Capabilities(tuple(target.name for target in registry()))

    def run(
        self,
        job: ChildJob,
        *,
        on_event: Callable[[Event], None],
        cancelled: Callable[[], bool],
        limits: Limits,
        kernels: KernelObjects | None = None,
        on_usage: OnUsage = lambda usage: None,
    ) -> Manifest:
        """Write the bundle."""
        assert isinstance(job, CompileJob)
        on_event(StageStarted(Stage.CODEGEN))
        on_event(Log("compiling"))
        return write_bundle(job, Path(job.output))


if __name__ == "__main__":
    settings = Settings()
    logs.configure("WARNING")
    services = build(settings, compiler=StubCompiler())
    try:
        sys.exit(serve(services, concurrency=int(sys.argv[1])))
    finally:
        services.close()
