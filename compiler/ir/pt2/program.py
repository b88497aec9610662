"""A whole `.pt2` program: its inputs and outputs under the names of the user's arguments and
results, sizes with their ranges, weights, and the graph. Nothing of it is run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.errors import LoadError
from compiler.ir.pt2 import pytrees
from compiler.ir.pt2.archive import (
    Archive,
    open_archive,
    refuse_malformed,
    refusing_other_kinds,
)
from compiler.ir.pt2.symbols import parse_size
from compiler.ir.pt2.tensors import Form, dtype_of, form_of
from relaxd.contract.dims.axes import Axis

if TYPE_CHECKING:
    import numpy as np

_MAJOR = 8
"""The version of torch's schema: minor versions add what older readers may leave unread."""
_WIDEST = 1 << 40
"""A greatest size beyond this one says nothing."""


@dataclass(frozen=True)
class Argument:
    """A tensor that the caller gives: its name in the graph, and as an input."""

    value: str
    name: str
    dtype: str
    axes: tuple[Axis, ...]


@dataclass(frozen=True)
class Stored:
    """A parameter, buffer or constant: its name in the graph, and its path in the user's module.

    form: how it lies in the bytes of its storage; constant: it is stored with the constants, as
    buffers are that a state dict leaves out.
    """

    value: str
    path: str
    storage: memoryview
    form: Form
    constant: bool

    @cached_property
    def data(self) -> np.ndarray[Any, Any]:
        """The tensor over the mapped file."""
        return self.form.over(self.storage)


@dataclass(frozen=True)
class Program:
    """document: the graph as the file has it, which `nodes` reads; constants: arguments that were
    fixed when the program was exported; outputs: (name, argument of the graph); mutated: the
    argument that replaces a buffer after a call, by the buffer's path; ranges: of symbols; guards:
    what torch assumed of sizes, as comparisons.
    """

    document: Mapping[str, Any]
    arguments: tuple[Argument, ...]
    stored: tuple[Stored, ...]
    constants: Mapping[str, Any]
    outputs: tuple[tuple[str, Mapping[str, Any]], ...]
    mutated: Mapping[str, Mapping[str, Any]]
    ranges: Mapping[str, tuple[int, int | None]]
    guards: tuple[str, ...] = ()


def read_program(path: Path) -> Program:
    """The program in the file; raises LoadError."""
    archive = open_archive(path)
    name = _model_name(archive)
    document = archive.document(f"models/{name}.json")
    with refusing_other_kinds():
        return _read(archive, name, document)


def _model_name(archive: Archive) -> str:
    names = sorted(
        part.removeprefix("models/").removesuffix(".json")
        for part in archive.parts
        if part.startswith("models/") and part.endswith(".json")
    )
    if len(names) != 1 and "model" not in names:
        compiled = any(part.startswith("data/aotinductor/") for part in archive.parts)
        raise LoadError(
            "the .pt2 file holds a library that AOTInductor compiled, and no program"
            if compiled and not names
            else f"the .pt2 file holds {len(names)} programs: {', '.join(names[:5])}",
            reason="pt2_programs",
            field="model",
            hint="save the one program with torch.export.save",
        )
    return "model" if "model" in names else names[0]


def _read(archive: Archive, name: str, document: dict[str, Any]) -> Program:
    _check_version(document)
    module = document["graph_module"]
    graph = module["graph"]
    shapes = graph["tensor_values"]
    payloads = _payloads(archive, name)
    arguments: list[Argument] = []
    stored: list[Stored] = []
    constants: dict[str, Any] = {}
    for spec in module["signature"]["input_specs"]:
        (kind, content), *_ = spec.items()
        match kind:
            case "user_input":
                arguments += _argument(content["arg"], shapes, constants, len(arguments))
            case "parameter" | "buffer" | "tensor_constant":
                stored.append(_stored(archive, content, payloads))
            case "constant_input":
                constants[content["name"]] = next(iter(content["value"].values()))
            case _:
                _refuse_part(f"the input {content.get('custom_obj_name', kind)!r}", kind)
    outputs, mutated = _outputs(module)
    ranges = {symbol: _range(limits) for symbol, limits in document["range_constraints"].items()}
    return Program(
        graph, tuple(arguments), tuple(stored), constants, outputs, mutated, ranges,
        tuple(map(str, document.get("guards_code") or ())),
    )  # fmt: skip


def _check_version(document: dict[str, Any]) -> None:
    version = document["schema_version"]
    if version["major"] != _MAJOR:
        raise LoadError(
            f"the program is written in version {version['major']}.{version['minor']} of torch's "
            f"schema, known is {_MAJOR}",
            reason="pt2_version",
            field="model",
            hint="save the program again with torch.export.save of torch 2.8 to 2.13",
        )


def _payloads(archive: Archive, name: str) -> dict[str, tuple[str, Any]]:
    """The folder of each stored tensor, and the file's description of it."""
    payloads: dict[str, tuple[str, Any]] = {}
    for kind in ("weights", "constants"):
        part = f"data/{kind}/{name}_{kind}_config.json"
        if part in archive.parts:
            for path, payload in archive.document(part)["config"].items():
                payloads[path] = (f"data/{kind}/", payload)
    return payloads


def _stored(
    archive: Archive, content: dict[str, Any], payloads: Mapping[str, tuple[str, Any]]
) -> Stored:
    path = next(content[key] for key in content if key.endswith("_name"))
    if path not in payloads:
        refuse_malformed(f"it has no tensor {path!r}")
    folder, payload = payloads[path]
    if payload["use_pickle"]:
        _refuse_part(f"the tensor {path!r}", "pickled")
    data = archive.part(f"{folder}{payload['path_name']}")
    form = form_of(data, payload["tensor_meta"], path)
    return Stored(content["arg"]["name"], path, data, form, folder == "data/constants/")


def _argument(
    arg: dict[str, Any], shapes: Mapping[str, Any], constants: dict[str, Any], index: int
) -> list[Argument]:
    """The tensor that an argument is; none where exporting fixed its value."""
    (kind, content), *_ = arg.items()
    if kind == "as_tensor":
        name = content["name"]
        meta = shapes[name]
        axes = tuple(axis_of(size) for size in meta["sizes"])
        return [Argument(name, name, dtype_of(meta["dtype"], name), axes)]
    if kind in ("as_sym_int", "as_sym_float", "as_sym_bool") and "as_name" in content:
        _refuse_part(f"the argument {content['as_name']!r}, a number that callers give,", kind)
    if kind not in ("as_none", "as_int", "as_float", "as_bool", "as_string"):
        _refuse_part(f"argument {index} of forward", kind)
    constants[f"argument {index}"] = content
    return []


def axis_of(size: dict[str, Any]) -> Axis:
    """A size of the file, of torch's symbols; raises LoadError for one that no axis can be."""
    if "as_int" in size:
        return Axis(str(int(size["as_int"])))
    return parse_size(size["as_expr"]["expr_str"])


def _refuse_part(what: str, kind: str) -> None:
    raise LoadError(
        f"{what} is not supported: {kind}",
        reason="pt2_pickled" if kind == "pickled" else "pt2_part",
        field="model",
        hint="unwrap tensor subclasses before exporting: pickled parts are not read"
        if kind == "pickled"
        else "give it to the program as a tensor, or fix its value when exporting",
    )


def _outputs(
    module: dict[str, Any],
) -> tuple[tuple[tuple[str, Mapping[str, Any]], ...], dict[str, Mapping[str, Any]]]:
    """Results by name, and the values that replace buffers."""
    results: list[Mapping[str, Any]] = []
    mutated: dict[str, Mapping[str, Any]] = {}
    for spec in module["signature"]["output_specs"]:
        (kind, content), *_ = spec.items()
        match kind:
            case "user_output":
                results.append(content["arg"])
            case "buffer_mutation" | "parameter_mutation":
                path = content.get("buffer_name") or content["parameter_name"]
                mutated[path] = {"as_tensor": content["arg"]}
            case _:
                _refuse_part(f"the program's output {kind!r}", "training and tokens")
    (entry, *_) = [entry for entry in module["module_call_graph"] if entry["fqn"] == ""]
    names = pytrees.names_of(json.loads(entry["signature"]["out_spec"]))
    if len(names) != len(results):
        refuse_malformed(f"it has {len(results)} outputs, and names for {len(names)}")
    named = [
        (name, result)
        for name, result in zip(names, results, strict=True)
        if "as_none" not in result
    ]
    return tuple(named), mutated


def _range(limits: dict[str, Any]) -> tuple[int, int | None]:
    low, high = limits["min_val"], limits["max_val"]
    low = max(0 if low is None else int(low), 0)
    high = None if high is None or int(high) >= _WIDEST else int(high)
    if high is not None and high < max(low, 1):
        refuse_malformed(f"the sizes from {low} to {high} are none")
    return low, high
