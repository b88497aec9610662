"""The library's side of verify where an emulated PC has the processor: as
`compiler.verify.run.emulated`, with a machine that is started for each point.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler import targets
from compiler.isolation.step import Record, serve
from compiler.verify.emulation import dynamic, program
from compiler.verify.emulation.pc import bochs, disk
from compiler.verify.point_loop import PointFailed, PointLate, run_points
from compiler.verify.run.emulated import child_seconds, program_of
from relaxd.contract.options import Flavour
from relaxd.loader.bundles.bundle import read_manifest

OUTPUT_BYTES = 256 << 20
"""The most that the outputs of one point may have."""
_TAIL = 500


@dataclass(frozen=True)
class Machine:
    """A PC that runs one command at a time: its processor, the libraries that programs load there,
    the file that they write, and the processor time that the emulator has for all of them.
    """

    processor: str
    libraries: Sequence[Path]
    output: Path
    seconds: float

    def start(self, command: Sequence[str]) -> None:
        """Run the command to its end; raises PointFailed with the end of what it printed, PointLate
        where the seconds are over.
        """
        paths = [Path(word) for word in command if word.startswith("/")]
        files = dict.fromkeys([path for path in paths if path != self.output] + [*self.libraries])
        try:
            ended = bochs.run(
                self.processor,
                command,
                list(files),
                {self.output: OUTPUT_BYTES},
                seconds=self.seconds - child_seconds(),
            )
        except disk.Unfit as error:
            raise PointFailed(str(error)) from error
        if ended.late:
            raise PointLate(f"the emulator had not finished it in {self.seconds:.0f} s")
        if ended.status != 0:
            how = f"ended with status {ended.status}"
            raise PointFailed(f"under Bochs: {ended.printed.strip()[-_TAIL:] or how}")


def run_library(spec: Record, record: Callable[[Record], None]) -> None:
    """Run the library at every point of the spec (see `run_points`).

    spec: bundle, target, scratch (with the `program` in it); its seconds are of processor time.
    """
    machine = _machine(spec)
    run_points(spec, record, program_of(spec, (), machine.start).run, clock=child_seconds)


def _machine(spec: Record) -> Machine:
    target, bundle = targets.resolve(spec["target"]), Path(spec["bundle"]).absolute()
    (processor,) = target.emulator or ()
    libraries = [bundle / target.platform.library, *dynamic.system_libraries(target)]
    if read_manifest(bundle).flavour == Flavour.VM:
        runtime = sorted(bundle.glob("libtvm_runtime*.so"))
        libraries += [program.interface_of(target), *runtime]
    output = Path(spec["scratch"]).absolute() / "outputs"
    return Machine(processor, libraries, output, spec["seconds"])


if __name__ == "__main__":
    serve(run_library)
