"""The worker of a simulated pool: the robustness table's stub compiler, for every target."""

from pathlib import Path

from compiler.host.capabilities import Capabilities
from compiler.targets import registry
from service.settings import Settings
from tests.robustness import roles
from tests.robustness.stub import StubCompiler


class FleetCompiler(StubCompiler):
    """Takes builds for every target; the pool's settings say for which."""

    def capabilities(self) -> Capabilities:
        """Name every target."""
        return Capabilities(tuple(target.name for target in registry()))


def work_for_pool(settings: Settings, log: Path, slots: int) -> None:
    """Run `relaxd worker`, with the stub compiler."""
    roles.work(settings, log, slots, FleetCompiler())
