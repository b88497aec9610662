"""Exports a module with declared dims: tries the ways there are, compares each with the module at
several sizes, and saves the first that is right.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from relaxd.contract.dims.axes import Axis
from relaxd.contract.dims.dims import Dim, point_text
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest
from relaxd.torch.assumptions import Assumption, collect_assumptions
from relaxd.torch.attempts import Attempt, Candidate, Form, attempts_for, quiet
from relaxd.torch.errors import ExportError, load_torch
from relaxd.torch.inputs import Inputs, Sizes, choose_sizes, points_to_check, read_inputs
from relaxd.torch.sources import Source, locate
from relaxd.torch.target import call_target

_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Exported:
    """The saved file, and how it came about.

    notes: what was done to keep the dims; losses: what the file does not keep of the module;
    checked: the sizes at which it gave what the module gives.
    """

    path: Path
    form: Form
    inputs: tuple[TensorSpec, ...]
    dims: tuple[Dim, ...]
    notes: tuple[str, ...]
    losses: tuple[str, ...]
    checked: tuple[Sizes, ...]

    def to_json(self) -> dict[str, Any]:
        """The document that `relaxd export --json` prints."""
        return {
            "model": str(self.path),
            "form": self.form.value,
            "inputs": [spec.to_json() for spec in self.inputs],
            "dims": {dim.name: dim.to_json() for dim in self.dims},
            "notes": list(self.notes),
            "losses": list(self.losses),
            "checked": [dict(point) for point in self.checked],
        }


@dataclass(frozen=True)
class _Failure:
    """Why an attempt failed: torch's words, the line, and what torch assumed of sizes before."""

    attempt: Attempt
    message: str
    source: Source | None
    assumptions: tuple[Assumption, ...] = ()


def export(
    module: Any,
    example: Any = None,
    *,
    output: str | Path,
    dims: Mapping[str, Any] | None = None,
    inputs: Mapping[str, str] | None = None,
) -> Exported:
    """Export a module of torch to the file `output`, with its dims, for `relaxd compile`.

    module: an `nn.Module`, which is set to evaluation, or a class or function that gives one or
    (module, example). example: a tensor, a tuple of the arguments of forward, or a dict by name;
    where there is none, `inputs` declares all. dims: name to an int, (min, max) or the command
    line's `1:512%8`; inputs: name to `int64[batch,seq]`. An input that is not declared has its
    example's sizes, but for axes whose dims are declared as `NAME_AXIS`, such as `x_0`.

    Where torch.export fixes a dim, the file may be TorchScript in place of a program of
    torch.export: `losses` says so. Raises ExportError naming the dim and the line of the user's
    code, DeclarationError for declarations that do not fit, TorchMissing without torch.
    """
    load_torch()
    request = CompileRequest.of(dims=dims, inputs=inputs)
    user_module, own_example = call_target(module, getattr(module, "__name__", "the module"))
    return export_module(
        user_module, own_example if example is None else example, request, Path(output)
    )


def export_module(module: Any, example: Any, request: CompileRequest, output: Path) -> Exported:
    """`export`, from declarations that are read already."""
    module.eval()
    read = read_inputs(module, example, request)
    sizes = choose_sizes(read)
    with quiet():
        wanted = [(point, _run_module(read, point)) for point in points_to_check(read, sizes)]
        failures: list[_Failure] = []
        for attempt in attempts_for(read):
            outcome = _try(attempt, read, sizes, wanted)
            if isinstance(outcome, Candidate):
                outcome.save(output, _document(read))
                return Exported(
                    output,
                    attempt.form,
                    read.tensors,
                    tuple(read.dims.values()),
                    (*_reasons(failures, attempt), *outcome.notes),
                    outcome.losses,
                    tuple(point for point, _ in wanted),
                )
            failures.append(outcome)
    raise _explain(failures, sizes)


def _try(
    attempt: Attempt, inputs: Inputs, sizes: Sizes, wanted: Sequence[tuple[Sizes, list[Any]]]
) -> Candidate | _Failure:
    with collect_assumptions(inputs.axes) as assumptions:
        try:
            candidate = attempt.make(inputs, sizes)
        except ExportError:
            raise
        except Exception as error:
            message = f"{type(error).__name__}: {_first_line(error)}"
            return _Failure(
                attempt, message, locate(error), _relevant(assumptions, str(error), inputs)
            )
    for point, outputs in wanted:
        why = _difference(candidate, inputs, point, outputs)
        if why is not None:
            return _Failure(attempt, f"it is not right at {point_text(point)}: {why}", None)
    return candidate


def _run_module(inputs: Inputs, point: Sizes) -> list[Any]:
    """The module's outputs; raises ExportError where it fails itself."""
    args, kwargs = inputs.call(point)
    try:
        return _tensors(inputs.module(*args, **kwargs))
    except Exception as error:
        where = locate(error)
        raise ExportError(
            f"the module itself fails at {point_text(point)}"
            f"{f', at {where.text}' if where else ''}: {_first_line(error)}",
            hint="declare ranges in which it works, or give an example that it takes",
            source=where.position if where else None,
        ) from error


def _difference(
    candidate: Candidate, inputs: Inputs, point: Sizes, wanted: list[Any]
) -> str | None:
    """Why the candidate is not the module at a point; None where it is."""
    torch = load_torch()
    args, kwargs = inputs.call(point)
    try:
        outputs = _tensors(candidate.run(*args, **kwargs))
    except Exception as error:
        return f"{type(error).__name__}: {_first_line(error)}"
    if len(outputs) != len(wanted):
        return f"it has {len(outputs)} outputs, the module {len(wanted)}"
    for index, (one, other) in enumerate(zip(outputs, wanted, strict=True)):
        if one.shape != other.shape or one.dtype != other.dtype:
            return f"output {index} is {one.dtype}{list(one.shape)}, not {list(other.shape)}"
        scale = other.abs().max().item() if other.is_floating_point() and other.numel() else 0.0
        if not torch.allclose(
            one, other, rtol=_TOLERANCE, atol=_TOLERANCE * min(scale, 1.0), equal_nan=True
        ):
            return f"output {index} differs"
    return None


def _tensors(outputs: Any) -> list[Any]:
    torch = load_torch()
    leaves = torch.utils._pytree.tree_leaves(outputs)
    return [leaf.clone() for leaf in leaves if torch.is_tensor(leaf)]


def _relevant(
    assumptions: Sequence[Assumption], message: str, inputs: Inputs
) -> tuple[Assumption, ...]:
    """Those that torch's error is about: they fix or relate a dim that it names."""
    named = {name for index, name in enumerate(inputs.dims) if f"relaxd_dim{index}" in message}
    chosen = [item for item in assumptions if named & set(item.dims)]
    fixing = [item for item in chosen if item.size is not None]
    return tuple(dict.fromkeys(fixing or chosen))


def _reasons(failures: Sequence[_Failure], attempt: Attempt) -> list[str]:
    """Why the attempt is not the first one."""
    notes = []
    for failure in failures:
        because = "; ".join(item.text for item in failure.assumptions) or failure.message
        if failure.source and not failure.assumptions:
            because += f", at {failure.source.text}"
        notes.append(f"{failure.attempt.name}: {because}")
    return [*notes, f"exported by {attempt.name}"] if notes else []


def _explain(failures: Sequence[_Failure], sizes: Sizes) -> ExportError:
    first = failures[0]
    tried = {failure.attempt.name: failure.message for failure in failures[1:]}
    if first.assumptions:
        item = first.assumptions[0]
        message = "; ".join(assumption.text for assumption in first.assumptions)
        return ExportError(
            f"the module cannot be exported with its dims: {message}",
            hint=_hint(item, sizes),
            source=item.source.position if item.source else None,
            dims=list(item.dims),
            tried=tried,
        )
    where = first.source
    return ExportError(
        f"the module cannot be exported: {first.message}{f', at {where.text}' if where else ''}",
        hint="write that line in torch's operators (torch.where or torch.cond for a branch on "
        "values), or so that torch.jit.script takes it",
        source=where.position if where else None,
        tried=tried,
    )


def _hint(item: Assumption, sizes: Sizes) -> str:
    name = item.dims[0]
    code = item.source.code if item.source else ""
    if len(item.dims) > 1:
        return "give dims that have to be equal one name"
    if item.size is None:
        return "declare a range that satisfies it, or change that line"
    if "range(" in code:
        change = f"replace the loop over {name} by operators of tensors, such as torch.arange"
    elif "int(" in code or ".item()" in code:
        change = "leave out int() and item(): sizes of tensors compute as numbers do"
    else:
        change = "take sizes from x.shape where they are used, and compare them with no number"
    return f"{change}; or fix the dim: --dim {name}={sizes[name]}"


def _document(inputs: Inputs) -> str:
    """The declarations as the file keeps them: fixed dims as numbers."""
    fixed = {name: dim.lowest for name, dim in inputs.dims.items() if dim.fixed}
    return json.dumps(
        {
            "inputs": {spec.name: _fix(spec, fixed).text for spec in inputs.tensors},
            "dims": {dim.name: dim.to_json() for dim in inputs.dims.values() if not dim.fixed},
        }
    )


def _fix(spec: TensorSpec, fixed: Mapping[str, int]) -> TensorSpec:
    axes = tuple(
        Axis(str(axis.evaluate(fixed))) if axis.dims and axis.dims <= fixed.keys() else axis
        for axis in spec.shape
    )
    return TensorSpec(spec.name, spec.dtype, axes)


def _first_line(error: BaseException) -> str:
    lines = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)[:300]
