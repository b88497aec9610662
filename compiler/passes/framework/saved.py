"""Modules in files: TVM's JSON, which keeps constants and which variable is which, with the target
and the ranges of dims that passes go by.

TVM 0.27 reads this form, and crashes when it writes a type of numbers: the nodes are written here.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi

from compiler.errors import summary
from compiler.ir.imported import Ranges
from relaxd.contract.dims.dims import Dim
from relaxd.errors import DeclarationError

_FORMAT = "relaxd.module.v1"
_BY_NAME = ("ir.EnvFunc", "ir.Op", "tirx.Axis")
"""Types whose values TVM looks up by name."""

_DIRECT = (1, 2, 3, 5)
"""The types of fields whose values an object's own node holds, by TVM's numbers: integers,
booleans, floats and dtypes."""

_OWN_FORMS = ("ffi.Tensor", "ffi.Shape", "target.Target", "ir.SourceName")
"""Types of which TVM writes something else than their fields."""


@dataclass(frozen=True)
class SavedModule:
    """target: the name of the one that it is compiled for; ranges: of the dims of `main`."""

    module: tvm.IRModule
    target: str
    ranges: Ranges


def write_module(path: Path, saved: SavedModule) -> None:
    """Write the file."""
    graph = _graph_of([saved.module, list(saved.ranges)])
    dims = [{"name": dim.name, **dim.to_json()} for dim in saved.ranges.values()]
    document = {"format": _FORMAT, "target": saved.target, "dims": dims, "module": graph}
    path.write_text(json.dumps(document), encoding="utf-8")


def read_module(path: Path, target: str = "native") -> SavedModule:
    """The module of a file that `write_module` or, as TVMScript, a person wrote; raises
    DeclarationError.

    target: of a module in TVMScript, which has no ranges of dims either.
    """
    try:
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".py":
            module = tvm.script.from_source(text)
            if not isinstance(module, tvm.IRModule):
                raise ValueError("it holds no module")
            return SavedModule(module, target, {})
        return _decode(json.loads(text))
    except MemoryError:
        raise
    except Exception as error:  # TVM's parser raises errors of many kinds
        raise DeclarationError(
            f"{path} holds no module that can be read: {summary(error)}",
            field="source",
            hint="give a .json file of `relaxd compile --dump`, or TVMScript without constants",
        ) from error


def _decode(document: Mapping[str, Any]) -> SavedModule:
    if document.get("format") != _FORMAT:
        raise ValueError(f"its format is not {_FORMAT}")
    module, variables = tvm.ir.load_json(json.dumps(document["module"]))
    dims = [Dim.of(dim.pop("name"), dim) for dim in map(dict, document["dims"])]
    return SavedModule(module, document["target"], dict(zip(variables, dims, strict=True)))


def _graph_of(root: Any) -> dict[str, Any]:
    """The nodes of a value, each behind those that it holds."""
    nodes: list[dict[str, Any]] = []
    # By key, with the value: without a reference to it an address would be used again.
    done: dict[Any, tuple[int, Any]] = {}
    root = tvm.runtime.convert(root)
    stack = [root]
    while stack:
        value = stack[-1]
        if _key(value) in done:
            stack.pop()
            continue
        missing = [part for part in _parts(value) if _key(part) not in done]
        if missing:
            stack += missing
            continue
        stack.pop()
        nodes.append(_node(value, lambda part: done[_key(part)][0]))
        done[_key(value)] = len(nodes) - 1, value
    return {"root_index": len(nodes) - 1, "nodes": nodes}


def _key(value: Any) -> Any:
    if isinstance(value, tvm_ffi.Object):
        return value.__chandle__()
    # 1, 1.0 and True are equal keys; so are 0.0 and -0.0.
    return type(value), repr(value)


def _fields(value: Any) -> Iterator[tuple[str, Any, bool]]:
    """Name and value of each field, and whether the object's own node holds the value."""
    info, chain = value.__tvm_ffi_type_info__, []
    while info is not None:
        chain.append(info)
        info = info.parent_type_info
    for level in reversed(chain):
        for field in level.fields:
            yield field.name, field.getter(value), field.field_static_type_index in _DIRECT


def _type_key(value: Any) -> str:
    return str(value.__tvm_ffi_type_info__.type_key)


def _is_plain(value: Any) -> bool:
    """Checks that it is written as one node without parts."""
    return not isinstance(value, tvm_ffi.Object) or _type_key(value) in (*_BY_NAME, *_OWN_FORMS)


def _parts(value: Any) -> list[Any]:
    """The values in a value that are nodes of their own."""
    if _is_plain(value):
        return []
    if isinstance(value, (tvm_ffi.Array, tvm_ffi.List)):
        return list(value)
    if isinstance(value, (tvm_ffi.Map, tvm_ffi.Dict)):
        return [part for item in value.items() for part in item]
    return [part for _, part, is_inside in _fields(value) if not is_inside]


def _node(value: Any, index: Any) -> dict[str, Any]:
    match value:
        case None:
            return {"type": "None"}
        case bool() | int() | float():
            return {"type": type(value).__name__, "data": value}
        case tvm_ffi.dtype():
            return {"type": "DataType", "data": str(value)}
        case str():
            return {"type": "ffi.String", "data": str(value)}
    if _type_key(value) in _BY_NAME:
        return {"type": _type_key(value), "data": str(value.name)}
    if _is_plain(value):
        graph = json.loads(tvm.ir.save_json(value))
        if len(graph["nodes"]) != 1:
            raise ValueError(f"a {_type_key(value)} has nodes of its own")
        return dict(graph["nodes"][0])
    if isinstance(value, (tvm_ffi.Array, tvm_ffi.List, tvm_ffi.Map, tvm_ffi.Dict)):
        return {"type": _type_key(value), "data": list(map(index, _parts(value)))}
    data = {
        name: _direct(part) if is_inside else index(part)
        for name, part, is_inside in _fields(value)
    }
    return {"type": _type_key(value), "data": data}


def _direct(value: Any) -> Any:
    return str(value) if isinstance(value, tvm_ffi.dtype) else value
