"""The library's side of verify where it is an archive for a micro-controller: as
`compiler.verify.run.native`, on a board that qemu emulates.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from compiler import targets
from compiler.isolation.linux import privileges
from compiler.isolation.step import Record, serve
from compiler.verify.emulation import board, emulator, tensors
from compiler.verify.emulation.emulator import Emulator
from compiler.verify.point_loop import Arrays, PointFailed, run_points
from compiler.verify.run.emulated import child_seconds, list_dims, read_outputs, to_storage
from relaxd.contract.bundle.manifest import Manifest
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.tensors.binding import Binding

_TAIL = 500


@dataclass(frozen=True)
class Program:
    """A program of a board, in the folder of its inputs and outputs."""

    emulator: Emulator
    target: targets.Target
    bundle: Path
    manifest: Manifest
    scratch: Path

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs by name; raises PointFailed with the end of what the program printed."""
        return self.measure(inputs)[0]

    def measure(self, inputs: Arrays) -> tuple[Arrays, dict[str, int]]:
        """Run at one point, and return what the board counted, too: instructions, and bytes of
        stack, context and arena.
        """
        items = self.manifest.inputs
        tensors.write(
            self.scratch / "inputs", [to_storage(inputs[item.name], item) for item in items]
        )
        done = subprocess.run(
            self._command(list_dims(Binding(items, self.manifest.dims), self.manifest, inputs)),
            cwd=self.scratch,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            preexec_fn=privileges.end_with_parent,
        )
        output = (done.stdout + done.stderr).strip()
        if done.returncode:
            why = output[-_TAIL:] or f"ended with status {done.returncode}"
            raise PointFailed(f"on the emulated board {board.name_of(self.target)}: {why}")
        words = (word.partition("=") for word in output.splitlines()[-1].split())
        counted = {name: int(number) for name, _, number in words}
        return read_outputs(self.manifest.outputs, self.scratch / "outputs"), counted

    def _command(self, dims: list[str]) -> list[str]:
        weights = "-"
        if self.manifest.weights:
            # The program names files by what its command line can hold.
            weights = "weights"
            link = self.scratch / weights
            if not link.exists():
                link.symlink_to(self.bundle / self.manifest.weights_file)
        return board.command(
            self.emulator,
            self.scratch / "program",
            *(weights, "inputs", "outputs", *dims),
        )


def program_of(spec: Record) -> Program:
    """The program of a spec: bundle, target, scratch, with the `program` in it; raises
    BundleError.
    """
    bundle = Path(spec["bundle"]).absolute()
    target, scratch = targets.resolve(spec["target"]), Path(spec["scratch"]).absolute()
    emulation = emulator.find(target)
    if isinstance(emulation, str):
        raise BundleError(emulation)
    return Program(emulation, target, bundle, read_manifest(bundle), scratch)


def run_library(spec: Record, record: Callable[[Record], None]) -> None:
    """Run the library at every point of the spec (see `run_points`); its seconds are of processor
    time.
    """
    run_points(spec, record, program_of(spec).run, clock=child_seconds)


if __name__ == "__main__":
    serve(run_library)
