"""How a bundle and the engines beside it take a model of any shapes and run it. Their packages are
imported where they are used: an installation may lack any of them.
"""

import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Runner = Callable[[Arrays], list[NDArray[Any]]]


@dataclass(frozen=True)
class Subject:
    """A model's file and its input names in order.

    threads: what every engine computes with; None leaves each its default.
    consts: scalars for inputs of the file that are not among `names`.
    bundle: what relaxd runs.
    """

    path: Path
    names: tuple[str, ...]
    threads: int | None = None
    consts: Mapping[str, Any] = field(default_factory=dict)
    bundle: Path | None = None


def load_bundle(subject: Subject) -> Runner:
    """The subject's bundle, by relaxd's loader."""
    from relaxd.loader.opening import load_library

    assert subject.bundle is not None
    model = load_library(subject.bundle, threads=subject.threads)
    return lambda feed: list(model.run(feed).values())


def load_onnxruntime(subject: Subject) -> Runner:
    """ONNX Runtime on the CPU."""
    import onnxruntime

    onnxruntime.disable_telemetry_events()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = subject.threads or 0
    session = onnxruntime.InferenceSession(
        subject.path, options, providers=["CPUExecutionProvider"]
    )
    numeric = {"float": "float32", "double": "float64"}
    fixed = {
        entry.name: np.full(
            _extents(entry.shape),
            subject.consts[entry.name],
            numeric.get(dtype := entry.type.removeprefix("tensor(").removesuffix(")"), dtype),
        )
        for entry in session.get_inputs()
        if entry.name in subject.consts
    }
    if not fixed:
        return lambda feed: list(session.run(None, feed))
    return lambda feed: list(session.run(None, {**feed, **fixed}))


def _extents(shape: Sequence[int | str | None]) -> list[int]:
    """A scalar's: 1 along each axis of any size."""
    return [size if isinstance(size, int) else 1 for size in shape]


def load_openvino(subject: Subject) -> Runner:
    """OpenVINO on the CPU, in float32."""
    import openvino

    return compile_openvino(openvino.Core().read_model(subject.path), subject, "f32")


def compile_openvino(model: Any, subject: Subject, precision: str) -> Runner:
    """A model that OpenVINO has read, computed in `f32` or `bf16`."""
    import openvino

    options: dict[str, Any] = {
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
    }
    if subject.threads:
        options["INFERENCE_NUM_THREADS"] = subject.threads
    compiled = openvino.Core().compile_model(model, "CPU", options)
    names, fixed = [], {}
    for port in compiled.inputs:
        known = [name for name in sorted(port.get_names()) if name in subject.names]
        consts = [name for name in sorted(port.get_names()) if name in subject.consts]
        names.append(known[0] if known else port.get_any_name())
        if consts and not known:
            shape = [int(size.get_min_length()) or 1 for size in port.get_partial_shape()]
            dtype = port.get_element_type().to_dtype()
            fixed[names[-1]] = np.full(shape, subject.consts[consts[0]], dtype)

    def run(feed: Arrays) -> list[NDArray[Any]]:
        result = compiled([fixed[name] if name in fixed else feed[name] for name in names])
        return [np.asarray(result[index]) for index in range(len(compiled.outputs))]

    return run


def load_torch(subject: Subject) -> Runner:
    """A TorchScript module or an exported program, run by torch as it was saved. TorchScript takes
    its arguments by name, a program in the order of `names`.
    """
    import torch

    torch.set_num_threads(subject.threads or torch.get_num_threads())
    exported = _is_exported(subject.path)
    module = (
        torch.export.load(subject.path).module()
        if exported
        else torch.jit.load(str(subject.path), map_location="cpu").eval()
    )

    def run(feed: Arrays) -> list[NDArray[Any]]:
        tensors = {name: torch.from_numpy(array) for name, array in feed.items()}
        with torch.inference_mode():
            if exported:
                return list(_arrays_of(module(*(tensors[name] for name in subject.names))))
            return list(_arrays_of(module(**tensors, **subject.consts)))

    return run


def _is_exported(path: Path) -> bool:
    """True for an archive of torch.export.save."""
    with zipfile.ZipFile(path) as archive:
        return any(name.rpartition("/")[2] == "archive_format" for name in archive.namelist())


def _arrays_of(value: Any) -> Sequence[NDArray[Any]]:
    """The tensors of what forward returns, in order, as arrays."""
    if value is None:
        return []
    if isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [array for item in value for array in _arrays_of(item)]
    return [value.numpy() if hasattr(value, "numpy") else np.asarray(value)]


ENGINES: dict[str, Callable[[Subject], Runner]] = {
    "relaxd": load_bundle,
    "onnxruntime": load_onnxruntime,
    "openvino": load_openvino,
    "torch": load_torch,
}
