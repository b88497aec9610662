"""The engines that programs run through: the importer alone, or the whole build."""

import io
import tempfile
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from compiler.ir.aten.torch_package import without_torch

with without_torch():
    import tvm_ffi

from compiler import ir
from compiler.errors import CompileError
from compiler.ir.imported import Imported
from compiler.isolation.messages import CompileJob
from relaxd.contract.request import CompileRequest
from relaxd.errors import RelaxdError
from relaxd.loader.opening import load
from tests.conformance.outcomes import Outcome
from tests.opinfo import entries, forms
from tests.opinfo.entries import Entry, Sample
from tests.opinfo.ties import choose_alike
from tests.support import geometries

Ran = tuple[Outcome, str]
Outputs = list[np.ndarray[Any, Any]]
Run = Callable[[Sequence[torch.Tensor]], Outputs]
WAYS = ("traced", "scripted", "exported")


@dataclass(frozen=True)
class Case:
    """An entry one way; `suite` and `category` are what the workers' results carry."""

    entry: Entry
    suite: str

    @property
    def name(self) -> str:
        """The case's name, unique."""
        return f"{self.entry}:{self.suite}"

    @property
    def category(self) -> str:
        """The entry's name."""
        return self.entry.name


@dataclass
class _Prepared:
    """The samples of the entry at hand, and what was built for it: most ways give one module."""

    entry: Entry
    samples: list[Sample]
    built: list[tuple[Imported, Run]] = field(default_factory=list)


_prepared: list[_Prepared] = []


def _prepare(entry: Entry) -> _Prepared:
    if not _prepared or _prepared[0].entry != entry:
        _prepared[:] = [_Prepared(entry, entries.samples(entry))]
    return _prepared[0]


def import_only(case: Case, mode: Any, target: str = "native") -> Ran:
    """Import alone: what is ok here may still be wrong."""
    return _judged(case, mode, lambda prepared, program: None)


def relaxd(case: Case, mode: Any, target: str = "native") -> Ran:
    """Build as `compile_model` does, without verification; load as a user does; compare."""
    return _judged(case, mode, lambda prepared, program: _built(prepared, program, target))


@dataclass(frozen=True)
class _Program:
    """A saved program and its import. references: torch's own run of it."""

    file: bytes
    request: CompileRequest
    imported: Imported
    reference: Callable[..., Any]


def _judged(case: Case, mode: Any, build: Callable[[_Prepared, _Program], Run | None]) -> Ran:
    prepared = _prepare(case.entry)
    excluded = "torch runs no sample of real tensors twice alike"
    judged = False
    for sample in prepared.samples:
        try:
            varied = entries.symbolic_axes(sample) if mode.value == "dynamic" else None
            if varied is None and mode.value == "dynamic":
                raise forms.NoProgramError("no axis may vary")
            program = _import(case, sample, varied[0] if varied else None)
            run = build(prepared, program)
        except forms.NoProgramError as error:
            excluded = str(error)
            continue
        except CompileError as error:
            kind = Outcome.ERROR if _is_internal(error) else Outcome.REFUSED
            return kind, f"{error.code}: {error}"[:300]
        except Exception as error:
            return Outcome.ERROR, f"untyped {describe(error)}"
        judged = True
        for tensors in (sample.tensors, *([varied[1]] if varied else [])):
            fault = _fault(case.entry, sample, program, run, tensors) if run else None
            if fault is not None:
                return fault
    return (Outcome.OK, "") if judged else (Outcome.EXCLUDED, " ".join(excluded.split())[:200])


def _is_internal(error: CompileError) -> bool:
    return error.code.rpartition(".")[2] in ("internal", "failed", "crashed", "out_of_memory")


def describe(error: BaseException) -> str:
    """An error in one line, with the last line of ours that it passed."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if "/compiler/" in frame.filename and "/site-packages/" not in frame.filename
    ]
    position = f" at {Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:240] + position


def _import(case: Case, sample: Sample, axes: list[set[int]] | None) -> _Program:
    if case.suite == "exported":
        file = forms.export(sample, axes)
        request = CompileRequest.of(options={"verify": False, "profile": False})
        with tempfile.NamedTemporaryFile(suffix=".pt2") as saved:
            saved.write(file)
            saved.flush()
            graph = ir.import_exported(Path(saved.name), request)
        return _Program(file, request, graph, sample.function)
    module = (forms.trace if case.suite == "traced" else forms.script)(case.entry, sample)
    file = forms.save(module)
    # torch may name arguments anew where it saves them.
    request = _request(torch.jit.load(io.BytesIO(file)), sample.tensors, axes)
    return _Program(file, request, ir.import_torchscript(file, request), module)


def _request(
    module: Any, tensors: Sequence[torch.Tensor], axes: list[set[int]] | None
) -> CompileRequest:
    names = [item.name for item in module._c._get_method("forward").schema.arguments[1:]]
    inputs = {}
    for index, (name, tensor) in enumerate(zip(names, tensors, strict=True)):
        symbolic = axes[index] if axes else set()
        extents = [
            forms.AXIS if axis in symbolic else str(extent)
            for axis, extent in enumerate(tensor.shape)
        ]
        inputs[name] = f"{str(tensor.dtype).removeprefix('torch.')}[{','.join(extents)}]"
    dims = {forms.AXIS: (2, None)} if axes else {}
    return CompileRequest.of(inputs=inputs, dims=dims, options={"verify": False, "profile": False})


def _built(prepared: _Prepared, program: _Program, target: str) -> Run:
    """The library of the program, or that of another way whose import was equal."""
    for earlier, run in prepared.built:
        if _is_equal(earlier, program.imported):
            return run
    run = _build(program, target)
    prepared.built.append((program.imported, run))
    return run


def _is_equal(lhs: Imported, rhs: Imported) -> bool:
    """Compare what a build reads of an import, but for the names of inputs and outputs."""
    shapes = [[(spec.dtype, spec.shape) for spec in each.inputs] for each in (lhs, rhs)]
    return (
        shapes[0] == shapes[1]
        and lhs.dims == rhs.dims
        and (lhs.quantized, lhs.stacks) == (rhs.quantized, rhs.stacks)
        and bool(tvm_ffi.structural_equal(lhs.module, rhs.module))
    )


def _build(program: _Program, target: str) -> Run:
    with tempfile.TemporaryDirectory(prefix="opinfo-") as folder:
        path, bundle = Path(folder) / "model", Path(folder) / "bundle"
        path.write_bytes(program.file)
        job = CompileJob(str(path), program.request.to_json(), target, str(bundle), "opinfo")
        geometries.build_at(job)
        model = load(bundle, threads=1)
    names = [spec.name for spec in model.inputs]

    def run(tensors: Sequence[torch.Tensor]) -> Outputs:
        arrays = [tensor.contiguous().numpy() for tensor in tensors]
        return list(model.run(dict(zip(names, arrays, strict=True))).values())

    return run


def _fault(
    entry: Entry, sample: Sample, program: _Program, run: Run, tensors: Sequence[torch.Tensor]
) -> Any:
    """How a run differs from torch's, None where it does not."""
    try:
        wanted = entries.flat(entries.call(program.reference, tensors))
    except Exception:
        return None  # the program is for the sample's sizes alone
    try:
        outputs = run(tensors)
    except (RelaxdError, CompileError) as error:
        return Outcome.ERROR, f"at run time: {error}"[:300]
    except Exception as error:
        return Outcome.ERROR, f"untyped at run time: {describe(error)}"
    precise = _precise(sample, tensors)
    why = differs(outputs, wanted, precise if len(precise) == len(wanted) else wanted)
    if why is None or choose_alike(entry, sample, tensors, outputs, wanted):
        return None
    return Outcome.WRONG, why


def _precise(sample: Sample, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The outputs computed in float64; none where torch has no such form of the operator."""
    try:
        doubles = [item.double() if item.is_floating_point() else item for item in tensors]
        return entries.flat(entries.call(sample.function, doubles))
    except Exception:
        return []


def differs(
    outputs: Outputs, wanted: Sequence[torch.Tensor], precise: Sequence[torch.Tensor]
) -> str | None:
    """Why outputs are not torch's: their number, dtypes, shapes, or values that are near neither
    torch's in their own precision nor in float64.
    """
    if len(outputs) != len(wanted):
        return f"{len(outputs)} outputs, not {len(wanted)}"
    for index, (have, want, fine) in enumerate(zip(outputs, wanted, precise, strict=True)):
        kind = str(want.dtype).removeprefix("torch.")
        if (str(have.dtype), have.shape) != (kind, tuple(want.shape)):
            return f"output {index} is {have.dtype}{list(have.shape)}, not {kind}{list(want.shape)}"
        near = 1e-4 if kind in ("float32", "float64") else 2e-2 if want.is_floating_point() else 0
        got = have.astype("f8")
        views = [item.detach().double().numpy() for item in (want, fine)]
        if not any(
            view.shape == got.shape and np.allclose(got, view, near, near, equal_nan=True)
            for view in views
        ):
            with np.errstate(all="ignore"):
                worst = np.abs(got - views[0])
            return f"output {index} differs by {np.nanmax(worst, initial=0.0):.3g}"
    return None
