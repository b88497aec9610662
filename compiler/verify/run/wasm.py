"""The library's side of verify where it is a WebAssembly module: as `compiler.verify.run.native`,
in node or wasmtime.
"""

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from compiler.isolation.linux import privileges
from compiler.isolation.step import Record, serve
from compiler.targets.target import ATOMICS
from compiler.verify.emulation import engine, tensors
from compiler.verify.inputs.buffers import outputs
from compiler.verify.point_loop import Arrays, PointFailed, run_points
from compiler.verify.run.emulated import child_seconds, read_outputs, to_storage
from relaxd.contract.bundle.manifest import Manifest
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.tensors.binding import Binding

_TAIL = 500


@dataclass(frozen=True)
class Module:
    """A module of a bundle, the engine for it, and the folder of its inputs and outputs."""

    engine: engine.Engine
    bundle: Path
    manifest: Manifest
    scratch: Path

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs by name, those of a library with state as the original gives them; raises
        PointFailed with the end of what the engine printed.
        """
        return outputs(self.manifest, inputs, self._outputs)

    def _outputs(self, inputs: Arrays, written: Sequence[str]) -> Arrays:
        """The outputs by name, and what the run left in the inputs that it writes."""
        manifest, input_file, results = (
            self.manifest,
            self.scratch / "inputs",
            self.scratch / "outputs",
        )
        arrays = [inputs[item.name] for item in manifest.inputs]
        tensors.write(
            input_file,
            [to_storage(array, item) for array, item in zip(arrays, manifest.inputs, strict=True)],
        )
        values = Binding(manifest.inputs, manifest.dims).solve(tuple(a.shape for a in arrays))
        dims = [f"{name}={value}" for name, value in values.items()]
        names = [item.name for item in manifest.inputs]
        positions = ",".join(str(names.index(name)) for name in written)
        done = subprocess.run(
            [*self._command(), str(input_file), str(results), positions, *dims],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            preexec_fn=privileges.end_with_parent,
        )
        if done.returncode:
            raise PointFailed(f"under {self.engine.name}: {_reason(done)}")
        specs = [item for name in written for item in manifest.inputs if item.name == name]
        return read_outputs((*manifest.outputs, *specs), results)

    def _command(self) -> list[str]:
        manifest = self.manifest
        weights = str(self.bundle / manifest.weights_file) if manifest.weights else ""
        library = str(self.bundle / manifest.library)
        return [*self.engine.command, library, manifest.entry, weights]


def _reason(done: "subprocess.CompletedProcess[str]") -> str:
    errors = [line for line in done.stderr.splitlines() if "Error: " in line]
    return (errors[0].strip() if errors else done.stderr.strip())[-_TAIL:] or (
        f"ended with status {done.returncode}"
    )


def run_library(spec: Record, record: Callable[[Record], None]) -> None:
    """Run the module at every point of the spec (see `run_points`).

    spec: bundle, scratch; its seconds are of processor time.
    """
    bundle = Path(spec["bundle"]).absolute()
    manifest = read_manifest(bundle)
    here = engine.choose(threads=ATOMICS in manifest.load.isa)
    if isinstance(here, str):
        raise BundleError(here)
    module = Module(here, bundle, manifest, Path(spec["scratch"]).absolute())
    run_points(spec, record, module.run, clock=child_seconds)


if __name__ == "__main__":
    serve(run_library)
