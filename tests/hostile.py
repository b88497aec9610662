"""Runs bundles on values that may end a process, in a process of their own.

`python -m tests.hostile BUNDLE INPUTS OUTPUTS` is that process: exit status 3 and the message for
an error that the library or the loader raises.
"""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import relaxd
from compiler import api
from compiler.verify.emulation import engine
from compiler.verify.point_loop import PointFailed
from compiler.verify.run.wasm import Module
from relaxd.errors import RelaxdError
from relaxd.loader.bundle import read_manifest
from tests.servers import missing

FORMS = ("standalone", "vm", "wasm32-simd")
"""The flavours for this machine, and a target that has the first alone."""
_REFUSED = 3

Arrays = Mapping[str, np.ndarray[Any, Any]]


class Refused(Exception):
    """What a run that ended with an error said."""


def built(
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
    manifest, scratch = read_manifest(bundle), bundle.with_name(f"{bundle.name}.run")
    scratch.mkdir(exist_ok=True)
    if str(manifest.target["arch"]).startswith("wasm"):
        try:
            return Module(str(engine.find()), bundle, manifest, scratch).run(dict(feed))
        except PointFailed as error:
            trapped = "RuntimeError" in str(error)
            raise (AssertionError if trapped else Refused)(str(error)) from error
    np.savez(scratch / "in.npz", **feed)
    command = [sys.executable, "-m", "tests.hostile", bundle, scratch / "in.npz"]
    done = subprocess.run(
        [*map(str, command), str(scratch / "out.npz")], capture_output=True, text=True, check=False
    )
    if done.returncode == _REFUSED:
        raise Refused(done.stdout.strip())
    assert done.returncode == 0, (done.returncode, done.stderr[-2000:])
    with np.load(scratch / "out.npz") as outputs:
        return dict(outputs)


def _main(bundle: str, inputs: str, outputs: str) -> int:
    with np.load(inputs) as feed:
        arrays = dict(feed)
    try:
        np.savez(outputs, **relaxd.load(bundle, threads=1).run(arrays))
    except RelaxdError as error:
        print(error)
        return _REFUSED
    return 0


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
