"""The library's side of verify where this machine only emulates the target: as
`compiler.verify.run.native`, under qemu.
"""

import resource
import subprocess
from collections.abc import Callable
from pathlib import Path

from compiler import targets
from compiler.isolation import sandbox
from compiler.isolation.step import Record, serve
from compiler.verify import npz
from compiler.verify.emulation import emulator, tensors
from compiler.verify.emulation.tensors import Array
from compiler.verify.time_budget import Pace
from relaxd.contract.manifest import Manifest
from relaxd.errors import BundleError
from relaxd.loader.bundle import read_manifest

_TAIL = 500


def run_points(spec: Record, record: Callable[[Record], None]) -> None:
    """spec: bundle, target, scratch (with the `program` in it), seconds, points as `{index, inputs,
    outputs}` files; records each.

    seconds: of processor time, so that how many points are run does not depend on what else the
    machine does.
    """
    bundle, scratch = Path(spec["bundle"]).absolute(), Path(spec["scratch"]).absolute()
    target = targets.resolve(spec["target"])
    found = emulator.find(target)
    if isinstance(found, str):
        raise BundleError(found)
    manifest = read_manifest(bundle)
    tensors.write(scratch / "weights", _weights(bundle, manifest))
    command = [
        *found.command,
        str(scratch / "program"),
        str(bundle / manifest.library),
        str(scratch / "weights"),
    ]
    pace = Pace(spec["seconds"], _emulated_seconds)
    for point in spec["points"]:
        inputs = npz.read(Path(point["inputs"]))
        if objection := pace.objection(inputs):
            record({"index": point["index"], "skipped": objection})
            continue
        tensors.write(scratch / "inputs", [inputs[item.name] for item in manifest.inputs])
        started = _emulated_seconds()
        done = subprocess.run(
            [*command, str(scratch / "inputs"), str(scratch / "outputs")],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            # When the time is up this process is killed, and the emulator would run on.
            preexec_fn=sandbox.end_with_parent,
        )
        if done.returncode:
            why = done.stderr.strip()[-_TAIL:] or f"ended with status {done.returncode}"
            record(
                {"index": point["index"], "failed": f"under {Path(found.command[0]).name}: {why}"}
            )
            continue
        pace.took(inputs, _emulated_seconds() - started)
        results = tensors.read(scratch / "outputs")
        npz.write(
            Path(point["outputs"]),
            dict(zip((item.name for item in manifest.outputs), results, strict=True)),
        )
        record({"index": point["index"]})


def _emulated_seconds() -> float:
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
    serve(run_points)
