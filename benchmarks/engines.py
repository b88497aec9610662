"""How each engine takes an ONNX file with symbolic axes and runs it; every function compiles once
for all shapes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxd.timing import engines
from relaxd.timing.engines import Arrays, Runner


@dataclass(frozen=True)
class Subject(engines.Subject):
    """A subject with what engines need that compile it, the declared dims and inputs.

    name: the model's key in `tests.support.models.known`, by which an engine that takes no ONNX
    finds the torch module.
    built: a folder where an engine that compiles ahead of time leaves its result and finds it the
    next time.
    """

    dims: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, str] = field(default_factory=dict)
    name: str = ""
    built: Path | None = None


def relaxd(subject: Subject, precision: str = "float32", calibration: str = "none") -> Runner:
    """Ours, through the public entry points; calibration: by the largest of the inputs that are
    measured.
    """
    from compiler import compile_model

    folder = None if subject.built else TemporaryDirectory(prefix="relaxd-bench-")
    parts = [part for part in (precision, calibration) if part not in ("float32", "none")]
    bundle = (Path(folder.name) if folder else subject.built) / ".".join(["relaxd", *parts])
    if not bundle.exists():
        options = {"verify": False, "profile": False, "precision": precision}
        samples = None if calibration == "none" else _largest(_feeds(subject))
        compile_model(
            subject.path,
            output=bundle,
            dims=subject.dims,
            inputs=subject.inputs,
            options=options | {"calibration": calibration},
            samples=samples,
        )
    call = engines.load_bundle(replace(subject, bundle=bundle))

    def run(feed: Arrays, keep: Any = folder) -> list[NDArray[Any]]:
        return call(feed)

    return run


def _feeds(subject: Subject) -> list[Path]:
    """Files of the inputs that are measured."""
    assert subject.built is not None
    return sorted(subject.built.glob("feed_*.npz"))


def _largest(feeds: Sequence[Path]) -> Path:
    def size(feed: Path) -> int:
        with np.load(feed) as arrays:
            return sum(arrays[name].size for name in arrays.files)

    return max(feeds, key=size)


def tvm(subject: Subject) -> Runner:
    """TVM's own ONNX importer and its default CPU build."""
    sys.modules["torch"] = None
    if subject.threads:
        os.environ["TVM_NUM_THREADS"] = str(subject.threads)
    import onnx
    import tvm as engine
    from tvm import relax
    from tvm.relax.frontend.onnx import from_onnx

    module = from_onnx(onnx.load(subject.path), keep_params_in_input=False)
    executable = engine.compile(module, target=engine.target.Target("llvm"))
    machine = relax.VirtualMachine(executable, engine.cpu())

    def run(feed: Arrays) -> list[NDArray[Any]]:
        result = machine["main"](*(engine.runtime.tensor(feed[name]) for name in subject.names))
        return [result.numpy()] if hasattr(result, "numpy") else [one.numpy() for one in result]

    return run


def iree(subject: Subject) -> Runner:
    """IREE: iree-import-onnx, iree-compile for the host's CPU, the Python runtime."""
    from iree import runtime

    with TemporaryDirectory(prefix="iree-") as folder:
        text, binary = Path(folder) / "model.mlir", Path(folder) / "model.vmfb"
        bin_folder = Path(sys.executable).parent
        subprocess.run(
            [bin_folder / "iree-import-onnx", subject.path, "-o", text],
            check=True,
            capture_output=True,
            text=True,
        )
        flags = [
            "--iree-hal-target-device=local",
            "--iree-hal-local-target-device-backends=llvm-cpu",
            "--iree-llvmcpu-target-cpu=host",
        ]
        subprocess.run(
            [bin_folder / "iree-compile", *flags, text, "-o", binary],
            check=True,
            capture_output=True,
            text=True,
        )
        if subject.threads:
            runtime.flags.parse_flags(f"--task_topology_group_count={subject.threads}")
        config = runtime.Config("local-task")
        context = runtime.SystemContext(config=config)
        context.add_vm_module(runtime.VmModule.copy_buffer(context.instance, binary.read_bytes()))
    entries = (
        module[name]
        for key, module in context.modules.items()
        if key != "hal"
        for name in module.vm_module.function_names
    )
    function = next(
        entry
        for entry in entries
        if not entry.vm_function.name.startswith("__") and "async" not in entry.vm_function.name
    )

    def run(feed: Arrays) -> list[NDArray[Any]]:
        result = function(*(feed[name] for name in subject.names))
        return [
            np.asarray(one) for one in (result if isinstance(result, (list, tuple)) else [result])
        ]

    return run


def openvino(subject: Subject, precision: str = "f32", calibrated: bool = False) -> Runner:
    """OpenVINO on the CPU, float32 or bfloat16 throughout; calibrated: in 8 bits where it can."""
    import openvino as engine

    model = engine.Core().read_model(subject.path)
    if calibrated:
        model = _quantised_by_nncf(model, subject)
    return engines.compile_openvino(model, subject, precision)


def _quantised_by_nncf(model: Any, subject: Subject) -> Any:
    """The model with weights and what multiplies them in 8 bits, as OpenVINO's own tool makes it,
    calibrated by the very inputs that are measured.
    """
    import nncf

    feeds = [dict(np.load(file)) for file in _feeds(subject)]
    kinds = [node.get_type_name() for node in model.get_ops()]
    transformer = kinds.count("MatMul") > kinds.count("Convolution")
    return nncf.quantize(
        model,
        nncf.Dataset(feeds, lambda feed: [feed[name] for name in subject.names]),
        subset_size=len(feeds),
        model_type=nncf.ModelType.TRANSFORMER if transformer else None,
    )


def quantize_model(subject: Subject) -> Runner:
    """ONNX Runtime on its own dynamic quantization of the model: weights with a scale for each
    column, what multiplies them with one for each tensor, found at run time.
    """
    from onnxruntime.quantization import QuantType, quantize_dynamic

    with TemporaryDirectory(prefix="quantized-") as folder:
        path = Path(folder) / "model.onnx"
        quantize_dynamic(
            subject.path, path, op_types_to_quantize=["MatMul", "Gemm", "Conv"], per_channel=True,
            weight_type=QuantType.QInt8,
        )  # fmt: skip
        return engines.load_onnxruntime(replace(subject, path=path))


def torch_compile(subject: Subject) -> Runner:
    """`torch.compile(dynamic=True)` of the module that `tests/support/exports.py` exports; no other
    model has one.
    """
    import torch

    from tests.zoo.weights import import_hubs

    import_hubs()  # transformers imports them, too, and stumbles where they do not load
    from tests.support.exports import MODULES

    if subject.name not in MODULES:
        raise LookupError(f"no torch module of {subject.name}")
    torch.set_num_threads(subject.threads or torch.get_num_threads())
    compiled = torch.compile(MODULES[subject.name]().eval(), dynamic=True)

    def run(feed: Arrays) -> list[NDArray[Any]]:
        with torch.inference_mode():
            result = compiled(*(torch.from_numpy(feed[name]) for name in subject.names))
        return [one.numpy() for one in (result if isinstance(result, (list, tuple)) else [result])]

    return run


PACKAGES = {
    "onnxruntime": "onnxruntime",
    "openvino": "openvino",
    "tvm": "tvm",
    "iree": "iree",
    "torch.compile": "torch",
    "relaxd": "relaxd",
    "relaxd.bfloat16": "relaxd",
    "relaxd.int8": "relaxd",
    "relaxd.int8.smooth": "relaxd",
    "relaxd.int8.static": "relaxd",
    "onnxruntime.int8": "onnxruntime",
    "openvino.bfloat16": "openvino",
    "openvino.int8": "nncf",
}
"""The package whose absence makes an engine missing."""

ENGINES: dict[str, Callable[[Subject], Runner]] = {
    "relaxd": relaxd,
    "onnxruntime": engines.load_onnxruntime,
    "openvino": openvino,
    "tvm": tvm,
    "iree": iree,
    "torch.compile": torch_compile,
    "relaxd.bfloat16": partial(relaxd, precision="bfloat16"),
    "relaxd.int8": partial(relaxd, precision="int8"),
    "relaxd.int8.smooth": partial(relaxd, precision="int8", calibration="smooth"),
    "relaxd.int8.static": partial(relaxd, precision="int8", calibration="static"),
    "onnxruntime.int8": quantize_model,
    "openvino.bfloat16": partial(openvino, precision="bf16"),
    "openvino.int8": partial(openvino, calibrated=True),
}
