"""Wrappers of a library for phones, beside its header: in Kotlin through JNI, and in Swift."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from compiler.codegen.standalone.source import Signature
from compiler.tir.c_text import element_bytes
from relaxd.contract.dims.axis_forms import AxisForms, identifier, write_axis
from relaxd.contract.dims.names import clean_comment
from relaxd.contract.dims.tensors import TensorSpec, storage_of

_FOLDER = Path(__file__).parent / "phones"
_FILES = {
    "android": ("Model.kt", "model_jni.c"),
    "ios": ("Model.swift", "module.modulemap", "Info.plist"),
}
_TAKEN = {
    "kt": "handle opened weights bind run shape close room dims class",
    "swift": "context weights weightBytes arena rooms bind run shape result given check room need",
}
_SWIFT_TYPES = {
    "bool": "UInt8",
    "float16": "UInt16",
    "bfloat16": "UInt16",
    "float32": "Float",
    "float64": "Double",
}
_AXES = {
    "kt": AxisForms(
        "Math.floorDiv({}, {})",
        "Math.floorMod({}, {})",
        "minOf({}, {})",
        "maxOf({}, {})",
        lambda value: f"{value}L",
    ),
    # Extents are no less than 0, and so is what axes divide.
    "swift": AxisForms("({} / {})", "({} % {})", "min({}, {})", "max({}, {})"),
}


@dataclass(frozen=True)
class _Names:
    """A language's names of the dims, inputs and outputs; none twice."""

    dims: Mapping[str, str]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def wrappers(signature: Signature, prefix: str, target: str, system: str) -> dict[str, str]:
    """The text of every file for the operating system, by name; none where it has no wrapper."""
    return {name: _fill(name, signature, prefix, target) for name in _FILES.get(system, ())}


def class_name(prefix: str) -> str:
    """`relaxd_two_words` is TwoWords."""
    words = prefix.removeprefix("relaxd_").split("_")
    joined = "".join(word[:1].upper() + word[1:] for word in words)
    return joined if joined[:1].isalpha() else f"Model{joined}"


def _fill(file: str, signature: Signature, prefix: str, target: str) -> str:
    language = file.rpartition(".")[2]
    values = {
        "NAME": clean_comment(signature.name),
        "TARGET": clean_comment(target),
        "PREFIX": prefix,
        "CLASS": class_name(prefix),
        "JNI": "model_jni.c",
        "INPUTCOUNT": str(max(len(signature.inputs), 1)),
        "DIMCOUNT": str(max(len(signature.bound), 1)),
    }
    if language in _TAKEN:
        names = _name_all(signature, _TAKEN[language].split())
        values |= (_kotlin if language == "kt" else _swift)(signature, names)
    text = re.sub("@([A-Z]+)@", lambda match: values[match[1]], (_FOLDER / file).read_text())
    return re.sub("\n\n\n+", "\n\n", text)


def _name_all(signature: Signature, taken: Iterable[str]) -> _Names:
    used = set(taken)

    def own(name: str) -> str:
        word = identifier(name)
        word = word if word[:1].isalpha() else f"_{word}"
        while word in used or word == "_":
            word += "_"
        used.add(word)
        return f"`{word}`"

    inputs = tuple(own(spec.name) for spec in signature.inputs)
    outputs = tuple(own(spec.name) for spec in signature.outputs)
    return _Names({dim.name: own(dim.name) for dim in signature.bound}, inputs, outputs)


def _kotlin(signature: Signature, names: _Names) -> dict[str, str]:
    inputs = list(zip(signature.inputs, names.inputs, strict=True))
    return {
        "INPUTS": "".join(
            f"    /** {_about(spec)} */\n    lateinit var {name}: ByteBuffer\n"
            "        private set\n\n"
            for spec, name in inputs
        ),
        "DIMS": _ranges(signature, "     * "),
        "PARAMETERS": ", ".join(f"{name}: Long" for name in names.dims.values()),
        "VALUES": ", ".join(names.dims.values()),
        "ROOMS": "".join(
            f"        {name} = room({_count(spec, names, 'kt', _bytes(spec))})\n"
            for spec, name in inputs
        ),
        "GIVEN": ", ".join(names.inputs),
        "OUTPUTS": "".join(
            f"    /** {_about(spec)}; until the next bind or run. */\n    val {name}: ByteBuffer\n"
            f"        get() = nativeOutput(handle, {i}).order(ByteOrder.nativeOrder())\n\n"
            for i, (spec, name) in enumerate(zip(signature.outputs, names.outputs, strict=True))
        ),
    }


def _swift(signature: Signature, names: _Names) -> dict[str, str]:
    inputs = list(zip(signature.inputs, names.inputs, strict=True))
    return {
        "INPUTS": "".join(
            f"  /// {_about(spec)}\n  public private(set) var {name} = "
            f"UnsafeMutableBufferPointer<{_swift_type(spec)}>(start: nil, count: 0)\n"
            for spec, name in inputs
        ),
        "DIMS": _ranges(signature, "  /// "),
        "PARAMETERS": ", ".join(f"{name}: Int64" for name in names.dims.values()),
        "VALUES": ", ".join(names.dims.values()),
        "ROOMS": "".join(
            f"    {name} = try given({i}, {_count(spec, names, 'swift', 1)})\n"
            for i, (spec, name) in enumerate(inputs)
        ),
        "OUTPUTS": "".join(
            f"  /// {_about(spec)}; until the next bind or run.\n"
            f"  public var {name}: UnsafeBufferPointer<{_swift_type(spec)}> {{ result({i}) }}\n\n"
            for i, (spec, name) in enumerate(zip(signature.outputs, names.outputs, strict=True))
        ),
    }


def _about(spec: TensorSpec) -> str:
    stored = storage_of(spec.dtype)
    return clean_comment(spec.text) + (
        f", one element a byte as {stored}" if stored != spec.dtype else ""
    )


def _ranges(signature: Signature, margin: str) -> str:
    lines = (
        f"{margin}{clean_comment(d.name)}: {clean_comment(d.describe())}" for d in signature.bound
    )
    return "\n".join(lines) or margin.rstrip()


def _count(spec: TensorSpec, names: _Names, language: str, item: int) -> str:
    """Elements of an input, times the bytes of each."""
    forms = _AXES[language]
    sizes = [write_axis(axis, names.dims, forms) for axis in spec.shape]
    return " * ".join([forms.number(item), *sizes])


def _bytes(spec: TensorSpec) -> int:
    return element_bytes(storage_of(spec.dtype))


def _swift_type(spec: TensorSpec) -> str:
    stored = storage_of(spec.dtype)
    return _SWIFT_TYPES.get(stored) or stored.replace("uint", "UInt").replace("int", "Int")
