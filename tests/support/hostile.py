"""Runs bundles on values that may end a process, in a process of their own."""

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import relaxd
from compiler import api
from compiler.targets.target import ATOMICS
from compiler.verify.emulation import engine
from compiler.verify.inputs import array_file
from compiler.verify.point_loop import PointFailed
from compiler.verify.run.wasm import Module
from relaxd.errors import RelaxdError
from relaxd.loader.bundles.bundle import read_manifest
from tests.support.servers import missing

FORMS = ("standalone", "vm", "wasm32-simd")
"""The backends for this machine, and a target that has the first alone."""

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Refused(Exception):
    """The message of a run that ended with an error."""


def build_hostile(
    model: onnx.ModelProto, folder: Path, form: str, dims: Mapping[str, Any] | None = None
) -> Path:
    """A bundle, neither verified nor profiled; dims: of any extent unless they are given."""
    native = not form.startswith("wasm")
    if not native and engine.lacking():
        missing("node", "apt-get install nodejs")
    named = {
        axis.dim_param
        for info in model.graph.input
        for axis in info.type.tensor_type.shape.dim
        if axis.dim_param
    }
    api.compile_model(
        model,
        output=folder,
        target="native" if native else form,
        dims={**dict.fromkeys(named, (0, None)), **(dims or {})},
        options={"verify": False, "profile": False} | ({"flavour": form} if native else {}),
    )
    return folder


def run(bundle: Path, feed: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs; raises Refused for a typed error, AssertionError where the process died."""
    (outcome,) = outcomes(bundle, [feed])
    if isinstance(outcome, Refused):
        raise outcome
    return outcome


def outcomes(
    bundle: Path, feeds: Sequence[Arrays]
) -> list[dict[str, np.ndarray[Any, Any]] | Refused]:
    """Call `run` with each of the feeds, one after the other in one process."""
    manifest, scratch = read_manifest(bundle), bundle.with_name(f"{bundle.name}.run")
    scratch.mkdir(exist_ok=True)
    if str(manifest.target["arch"]).startswith("wasm"):
        node = engine.choose(threads=ATOMICS in manifest.load.isa)
        assert isinstance(node, engine.Engine)
        return [_in_node(Module(node, bundle, manifest, scratch), feed) for feed in feeds]
    for number, feed in enumerate(feeds):
        array_file.write(scratch / f"{number}.npz", feed)
    command = [
        sys.executable,
        "-m",
        "tests.support.hostile",
        str(bundle),
        str(scratch),
        str(len(feeds)),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    ended = done.stdout.splitlines()
    assert done.returncode == 0, (done.returncode, len(ended), done.stderr[-2000:])
    return [_outcome(scratch / f"{n}.out.npz", line) for n, line in enumerate(ended)]


def _outcome(path: Path, line: str) -> dict[str, np.ndarray[Any, Any]] | Refused:
    message = json.loads(line)
    if message is not None:
        return Refused(message)
    with np.load(path) as outputs:
        return dict(outputs)


def _in_node(module: Module, feed: Arrays) -> dict[str, np.ndarray[Any, Any]] | Refused:
    try:
        return dict(module.run(dict(feed)))
    except PointFailed as error:
        if "RuntimeError" in str(error):
            raise AssertionError(f"the engine trapped: {error}") from error
        return Refused(str(error))


def _main(bundle: str, folder: str, count: str) -> None:
    """Writes a line for each feed: null, or the message of its error."""
    model = relaxd.load(bundle, threads=1)
    for number in range(int(count)):
        arrays = array_file.read(Path(folder, f"{number}.npz"))
        message = None
        try:
            np.savez(Path(folder, f"{number}.out.npz"), **model.run(arrays))
        except RelaxdError as error:
            message = str(error)
        print(json.dumps(message), flush=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
