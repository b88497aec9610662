"""The library's side of verify where its kernels run on WebGPU: as `compiler.verify.run.native`, in
a page of headless Chromium, on an adapter that is made of this machine's processor.
"""

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from compiler.isolation.step import Record, serve
from compiler.verify.emulation import browser, tensors
from compiler.verify.inputs.buffers import outputs
from compiler.verify.point_loop import Arrays, PointFailed, run_points
from compiler.verify.run.emulated import solve_dims, to_storage
from relaxd.contract.bundle.manifest import Manifest
from relaxd.contract.dims.tensors import STORAGE, storage_of
from relaxd.errors import BundleError
from relaxd.loader.bundles.bundle import read_manifest
from relaxd.loader.tensors import element_types
from relaxd.loader.tensors.binding import Binding

_PAGE = Path(browser.__file__).with_name("page.html")


@dataclass(frozen=True)
class _Model:
    """A model that the page has opened, and the folder of its inputs."""

    page: browser.Page
    manifest: Manifest
    scratch: Path

    def run(self, inputs: Arrays) -> Arrays:
        """The outputs by name, those of a library with state as the original gives them; raises
        PointFailed with what the page says.
        """
        return outputs(self.manifest, inputs, self._outputs)

    def _outputs(self, inputs: Arrays, written: Sequence[str]) -> Arrays:
        """The outputs by name, and what the run left in the inputs that it writes."""
        manifest = self.manifest
        dims = solve_dims(Binding(manifest.inputs, manifest.dims), manifest, inputs)
        try:
            results = _call(self.page, "run", self._stage_inputs(inputs), dims, list(written))
        except browser.BrowserFailed as error:
            raise PointFailed(f"in Chromium: {error}") from error
        by_name = {result["name"]: result for result in results}
        changed = [item for item in manifest.inputs if item.name in written]
        return {
            item.name: _array(by_name[item.name], item.dtype)
            for item in (*manifest.outputs, *changed)
        }

    def _stage_inputs(self, inputs: Arrays) -> list[Record]:
        """Writes each input to a file, and says where it lies."""
        records = []
        for number, item in enumerate(self.manifest.inputs):
            file = self.scratch / f"input{number}"
            file.write_bytes(np.ascontiguousarray(to_storage(inputs[item.name], item)).tobytes())
            shape = inputs[item.name].shape
            records.append(
                {"name": item.name, "dtype": item.dtype, "shape": shape, "url": file.as_uri()}
            )
        return records


def _array(result: Record, dtype: str) -> np.ndarray[Any, Any]:
    content = base64.b64decode(result["data"])
    array = tensors.from_bytes(content, storage_of(dtype), tuple(result["shape"]), 0)
    return element_types.view_as(array, dtype) if dtype in STORAGE else array


def _call(page: browser.Page, name: str, *arguments: Any) -> Any:
    """The result of a function of the page's module."""
    literals = ", ".join(map(json.dumps, arguments))
    return page.evaluate(f"import('./page.mjs').then((module) => module.{name}({literals}))")


def run_library(spec: Record, record: Callable[[Record], None]) -> None:
    """Run the module at every point of the spec (see `run_points`); where the adapter is too small
    for it, record that alone.

    spec: bundle, scratch; its seconds are of processor time.
    """
    program = browser.find()
    if program is None:
        raise BundleError(str(browser.lacking()))
    bundle, scratch = Path(spec["bundle"]).absolute(), Path(spec["scratch"]).absolute()
    manifest = read_manifest(bundle)
    names = ["manifest.json", manifest.library, *([manifest.weights_file] * bool(manifest.weights))]
    with browser.open_page(program, _PAGE.as_uri(), scratch / "profile") as page:
        try:
            _call(page, "open", {name: (bundle / name).as_uri() for name in names})
        except browser.BrowserFailed as error:
            if not str(error).startswith("LoadContractError"):
                raise
            # Another adapter may have what this one lacks.
            record({"unable": str(error)})
            return
        run_points(
            spec, record, _Model(page, manifest, scratch).run, clock=browser.seconds_of(page)
        )


if __name__ == "__main__":
    serve(run_library)
