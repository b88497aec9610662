"""Who answers a draw: relaxd's libraries in guarded memory, and ONNX Runtime. Each is called in a
process other than the judge's, which may die.
"""

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from compiler.build import build
from compiler.errors import CompileError
from compiler.isolation.messages import CompileJob
from compiler.verify.reference.onnx import WRONG_OPTIMIZERS
from relaxd.contract.dims.tensors import storage_of
from relaxd.contract.request import CompileRequest
from relaxd.errors import RelaxdError
from relaxd.loader.bundles.bundle import open_bundle
from relaxd.loader.engines import runtime as machine
from relaxd.loader.engines.standalone import Code, opened_library
from relaxd.loader.engines.standalone import _Host as Host
from relaxd.loader.model import Model
from relaxd.loader.opening import load
from relaxd.loader.tensors.binding import Binding
from tests.fuzz.case import Array
from tests.fuzz.hostile.guard import MOST, Guard

Feed = Mapping[str, Array]
SIDES = ((True, 0xAA), (False, 0x55))
"""Whether blocks end at a missing page or begin behind one, and what is around: an answer must
depend on neither.
"""
STATUSES = ("dim", "check", "memory", "kernel", "usage")


@dataclass(frozen=True)
class Refused:
    """A typed error, by its code; typed: whether it is one."""

    code: str
    why: str
    typed: bool = True


Answer = Sequence[Array] | Refused


class Misshapen(Exception):
    """An output has extents that nothing can have."""


@dataclass(frozen=True)
class Order:
    """A library to build. model: as a subject's content; inputs: what the request says of a
    program's; dims: their ranges.
    """

    model: bytes | str
    inputs: Mapping[str, str]
    dims: Mapping[str, tuple[int, int]]
    flavour: str
    target: str
    bundle: str


@dataclass(frozen=True)
class Question:
    """A call of a library, once for each side."""

    bundle: str
    guard: str
    feed: Feed


def make(order: Order) -> Refused | None:
    """Builds the library as `compile_model` does."""
    bundle = Path(order.bundle)
    bundle.parent.mkdir(parents=True, exist_ok=True)
    model = bundle.with_suffix(".onnx" if isinstance(order.model, bytes) else ".pt")
    if isinstance(order.model, bytes):
        model.write_bytes(order.model)
    else:
        _script(order.model).save(str(model))
    options = {"verify": False, "profile": False, "flavour": order.flavour}
    inputs = None if isinstance(order.model, bytes) else dict(order.inputs)
    request = CompileRequest.of(
        inputs=inputs, dims=order.dims, targets=(order.target,), options=options
    )
    try:
        build(CompileJob(str(model), request.to_json(), order.target, str(bundle), "model"))
    except CompileError as error:
        return Refused(error.code, f"{error.failure.op or error.failure.pass_name}: {error}")
    return None


def standalone(question: Question) -> list[Answer]:
    """By the library's C interface, every block of memory that it sees being a guarded one."""
    return [_direct(question, *side) for side in SIDES]


def _direct(question: Question, at_end: bool, byte: int) -> Answer:
    code, manifest, binding = _code(question.bundle)
    guard = Guard(question.guard, at_end, byte)
    try:
        arrays = binding.arrays(question.feed)
        dims = binding.solve(tuple(array.shape for array in arrays))
        return _Call(code, guard, len(manifest.outputs)).run(
            [guard.copy(np.asarray(array)) for array in arrays],
            [dims[name] for name in sorted(dims)],
            [np.dtype(storage_of(spec.dtype)) for spec in manifest.outputs],
            [len(spec.shape) for spec in manifest.outputs],
        )
    except MemoryError as error:
        return Refused("memory", str(error))
    except Misshapen as error:
        return Refused("shape", str(error), typed=False)
    finally:
        guard.close()


@cache
def _code(path: str) -> tuple[Code, Any, Binding]:
    with open_bundle(path) as bundle:
        code = Code(bundle, opened_library(bundle, bundle.manifest.library))
        return code, bundle.manifest, Binding(bundle.manifest.inputs, bundle.manifest.dims)


class _Call:
    """One context, from open to close."""

    def __init__(self, code: Code, guard: Guard, outputs: int) -> None:
        self._code, self._guard, self._outputs = code, guard, outputs
        address = {
            name: ctypes.cast(getattr(guard.library, f"guard_{name}"), ctypes.c_void_p).value
            for name in ("allocate", "release")
        }
        self._host = Host(threads=1, **address)
        self._context = ctypes.c_void_p(self._room(code.size()).ctypes.data)

    def _room(self, size: int) -> Array:
        return self._guard.empty((max(size, 1),), np.dtype(np.uint8), align=64)

    def run(
        self,
        inputs: Sequence[Array],
        dims: Sequence[int],
        dtypes: Sequence[np.dtype],
        ranks: Sequence[int],
    ) -> Answer:
        """The outputs, copied out of guarded memory."""
        code, context = self._code, self._context
        weights = None if code.weights is None else self._guard.copy(np.asarray(code.weights))
        status = code.open(context, _pointer(weights), ctypes.byref(self._host))
        if status:
            return self._failed(status)
        try:
            need = code.bind(context, (ctypes.c_int64 * max(len(dims), 1))(*dims))
            status = -need if need < 0 else code.arena(context, _pointer(self._room(need)))
            if status:
                return self._failed(status)
            shapes = [
                tuple(code.shape(context, i)[: ranks[i]]) if ranks[i] else ()
                for i in range(self._outputs)
            ]
            own = [
                None if -1 in shape else self._guard.empty(shape, dtype)
                for shape, dtype in zip(shapes, dtypes, strict=True)
            ]
            status = code.run(context, _vector(inputs), _vector(own))
            if status:
                return self._failed(status)
            return [
                self._fetch(i, dtypes[i], ranks[i]) if array is None else array.copy()
                for i, array in enumerate(own)
            ]
        finally:
            code.close(context)

    def _failed(self, status: int) -> Refused:
        return Refused(STATUSES[status - 1], self._code.failure(self._context).decode())

    def _fetch(self, output: int, dtype: np.dtype, rank: int) -> Array:
        shape = tuple(self._code.shape(self._context, output)[:rank]) if rank else ()
        size = prod(shape) * dtype.itemsize
        if min(shape, default=0) < 0 or size > MOST:
            raise Misshapen(f"an output is of {list(shape)}")
        content = ctypes.string_at(self._code.output(self._context, output), size)
        return np.frombuffer(content, np.uint8).view(dtype).reshape(shape)


def _pointer(array: Array | None) -> ctypes.c_void_p | None:
    return None if array is None else ctypes.c_void_p(array.ctypes.data)


def _vector(arrays: Sequence[Array | None]) -> Any:
    addresses = [None if array is None else array.ctypes.data for array in arrays]
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)


def vm(question: Question) -> list[Answer]:
    """By TVM's virtual machine, whose tensors come from a guarded allocator: it is preloaded."""
    model = _machine(question.bundle)
    return [_through(model, question, *side) for side in SIDES]


def _through(model: Model, question: Question, at_end: bool, byte: int) -> Answer:
    guard = Guard(question.guard, at_end, byte)
    try:
        arrays = {name: guard.copy(np.asarray(array)) for name, array in question.feed.items()}
        return [array.copy() for array in model.run(arrays).values()]
    except RelaxdError as error:
        return Refused(error.code, str(error))
    except MemoryError as error:
        return Refused("memory", str(error))
    except Exception as error:
        return Refused(type(error).__name__, str(error)[:300], typed=False)
    finally:
        guard.close()


@cache
def _machine(path: str) -> Model:
    # Its pool would give a block that an earlier tensor has left, and round its size up.
    machine._POOLED_ALLOCATOR = 1
    return load(path, threads=1)


def runtime(question: tuple[bytes | str, Feed]) -> Answer:
    """The answer of ONNX Runtime for a graph, of torch for a program."""
    model, feed = question
    try:
        if isinstance(model, str):
            return _by_torch(model, feed)
        return list(_session(model).run(None, dict(feed)))
    except Exception as error:
        return Refused(type(error).__name__, str(error)[:300])


@cache
def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(
        model,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=WRONG_OPTIMIZERS,
    )


def _by_torch(source: str, feed: Feed) -> list[Array]:
    import torch

    new = _script(source)(*(torch.from_numpy(np.array(array)) for array in feed.values()))
    return [tensor.numpy() for tensor in (new if isinstance(new, tuple) else (new,))]


@cache
def _script(source: str) -> Any:
    import torch

    module = torch.jit.script(type("Program", (torch.nn.Module,), {})())
    module.define(source)
    return module
