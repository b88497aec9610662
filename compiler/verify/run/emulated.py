"""The library's side of verify where this machine only emulates the target: as
`compiler.verify.run.native`, under qemu.
"""

import resource
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler import targets
from compiler.isolation.linux import privileges
from compiler.isolation.step import Record, serve
from compiler.verify.emulation import emulator, opencl, tensors
from compiler.verify.emulation.tensors import Array
from compiler.verify.point_loop import Arrays, PointFailed, run_points
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.tensors import STORAGE, TensorSpec
from relaxd.contract.options import Flavour
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.tensors import element_types
from relaxd.loader.tensors.binding import Binding

_TAIL = 500
Start = Callable[[Sequence[str]], None]
"""Runs a command to its end; raises PointFailed or PointLate where it does not end well."""


@dataclass(frozen=True)
class Program:
    """The emulated program: its command as far as it is the same at every point, the manifest of
    its library, the folder of its inputs and outputs, and what runs a command.
    """

    command: tuple[str, ...]
    manifest: Manifest
    scratch: Path
    start: Start
    binding: Binding | None = None

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs by name; raises what `start` raises."""
        input_file, output_file = self.scratch / "inputs", self.scratch / "outputs"
        tensors.write(
            input_file, [to_storage(inputs[item.name], item) for item in self.manifest.inputs]
        )
        self.start([*self.command, str(input_file), str(output_file), *self._dims(inputs)])
        return read_outputs(self.manifest.outputs, output_file)

    def _dims(self, inputs: Arrays) -> list[str]:
        """The dims that a library without a runtime takes; the virtual machine takes none."""
        return [] if self.binding is None else list_dims(self.binding, self.manifest, inputs)


def start_process(command: Sequence[str]) -> None:
    """Run the command as a process; raises PointFailed with the end of what it printed."""
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        # When the time is up this process is killed, and the emulator would run on.
        preexec_fn=privileges.end_with_parent,
    )
    if done.returncode:
        why = done.stderr.strip()[-_TAIL:] or f"ended with status {done.returncode}"
        raise PointFailed(f"under {Path(command[0]).name}: {why}")


def list_dims(binding: Binding, manifest: Manifest, inputs: Arrays) -> list[str]:
    """The values of `solve_dims`, in order."""
    return [str(value) for value in solve_dims(binding, manifest, inputs).values()]


def solve_dims(binding: Binding, manifest: Manifest, inputs: Arrays) -> dict[str, int]:
    """The dims that a library without a runtime takes for these inputs, by name."""
    solved = binding.solve(tuple(inputs[item.name].shape for item in manifest.inputs))
    named = {dim for item in manifest.inputs for axis in item.shape for dim in axis.dims}
    return {name: int(solved[name]) for name in sorted(named)}


def read_outputs(specs: Sequence[TensorSpec], file: Path) -> Arrays:
    """The tensors by name from the file that a program wrote."""
    return {
        item.name: element_types.view_as(array, item.dtype) if item.dtype in STORAGE else array
        for item, array in zip(specs, tensors.read(file), strict=True)
    }


def to_storage(array: Array, item: TensorSpec) -> Array:
    """The array as a library takes it."""
    return element_types.bytes_of(array, item) if item.dtype in STORAGE else array


def run_library(spec: Record, record: Callable[[Record], None]) -> None:
    """Run the library at every point of the spec (see `run_points`).

    spec: bundle, target, scratch (with the `program` in it); its seconds are of processor time, so
    that how many points are run does not depend on what else the machine does.
    """
    target = targets.resolve(spec["target"])
    emulation = emulator.find(target, Flavour(read_manifest(Path(spec["bundle"])).flavour))
    if isinstance(emulation, str):
        raise BundleError(emulation)
    kernels = Path(spec["scratch"]).absolute() / "kernels"
    cache = opencl.list_cache_words(kernels) if target.device is not None else ()
    program = program_of(spec, (*emulation.command, *cache), start_process)
    run_points(spec, record, program.run, clock=child_seconds)


def program_of(spec: Record, emulation: Sequence[str], start: Start) -> Program:
    """The program of a spec (see `run_library`). emulation: words ahead of the program."""
    bundle, scratch = Path(spec["bundle"]).absolute(), Path(spec["scratch"]).absolute()
    manifest = read_manifest(bundle)
    words = (*emulation, str(scratch / "program"))
    if manifest.flavour == Flavour.STANDALONE:
        file = str(bundle / manifest.weights_file) if manifest.weights else "-"
        binding = Binding(manifest.inputs, manifest.dims)
        return Program((*words, file), manifest, scratch, start, binding)
    weights = scratch / "weights"
    tensors.write(weights, _weights(bundle, manifest))
    library = str(bundle / manifest.library)
    return Program((*words, library, str(weights)), manifest, scratch, start)


def child_seconds() -> float:
    """Processor time of every run that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _weights(bundle: Path, manifest: Manifest) -> list[Array]:
    """The constants of the weights file, in the order in which the library takes them."""
    if not manifest.weights:
        return []
    content = (bundle / manifest.weights_file).read_bytes()
    return [
        tensors.from_bytes(content, weight.dtype, weight.shape, weight.offset)
        for weight in manifest.weights
    ]


if __name__ == "__main__":
    serve(run_library)
