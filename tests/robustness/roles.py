"""The processes of a service as a row starts them: forked from one process that has imported
everything, then set up by RELAXD_ variables as `relaxd api` and `relaxd worker` are.
"""

import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

# TVM's function interface imports torch wherever it is installed.
sys.modules.setdefault("torch", None)

from compiler.isolation.linux import privileges  # noqa: E402
from service import bootstrap  # noqa: E402
from service.adapters.compiler import ChildCompiler  # noqa: E402
from service.core import Compiler  # noqa: E402
from service.observability import logs  # noqa: E402
from service.processes.serve import serve  # noqa: E402
from service.settings import Settings, read_settings  # noqa: E402
from service.workers import main as workers  # noqa: E402
from tests.robustness.stub import StubCompiler, toolchain  # noqa: E402

MISBEHAVING = (sys.executable, "-P", "-m", "tests.robustness.misbehaving")


def api(settings: Settings, log: Path, port_file: Path) -> None:
    """Run `relaxd api`, on a free port that `port_file` gets."""
    _become(settings, log)
    serve(host="127.0.0.1", port=0, data_dir=None, workers=0, port_file=port_file)


def dying_api(settings: Settings, log: Path, port_file: Path) -> None:
    """Run `api` until the first job is committed: it dies in place of ringing."""
    setattr(bootstrap, "CeleryDoorbell", _Deathbell)  # noqa: B010 (no type of the module's own)
    api(settings, log, port_file)


class _Deathbell:
    trouble = None

    def __init__(self, app: object) -> None:
        pass

    def ring(self, build_id: str, capability: str) -> NoReturn:
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")


def worker(settings: Settings, log: Path, slots: int) -> None:
    """Run `relaxd worker`, with the stub compiler."""
    work(settings, log, slots, StubCompiler())


def worker_of_children(settings: Settings, log: Path, slots: int, token: str) -> None:
    """Run `relaxd worker`, with compile processes that misbehave as the model's text says."""
    work(settings, log, slots, ChildCompiler((*MISBEHAVING, token), toolchain))


def work(settings: Settings, log: Path, slots: int, compiler: Compiler) -> None:
    """Run `relaxd worker`, with that compiler."""
    _become(settings, log)
    chosen = read_settings()
    logs.configure(chosen.log_level)
    services = bootstrap.build(chosen, compiler=compiler)
    try:
        status = workers.serve(services, slots)
    finally:
        services.close()
    sys.exit(status)


def _become(settings: Settings, log: Path) -> None:
    """Take on what a process of its own would have: its variables and its output; end with the
    process that all are forked from, which ends with the rows.
    """
    privileges.end_with_parent()
    for name in [name for name in os.environ if name.startswith("RELAXD_")]:
        del os.environ[name]
    os.environ.update(settings.environment())
    output = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    for descriptor in (1, 2):
        os.dup2(output, descriptor)
