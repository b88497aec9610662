"""Compares a model that computes on strings with its steps and the model that is left, in a process
of its own: ONNX Runtime runs both, so that they differ by the steps alone.
"""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler.errors import summary
from compiler.ir.files.model_file import LoadedModel, open_model
from compiler.ir.onnx.model.dtypes import DTYPES
from compiler.ir.onnx.strings.cut import cut_strings
from compiler.ir.onnx.strings.tokenizers import DOMAIN as EXTENSIONS
from compiler.ir.strings import StringPart, without_strings
from compiler.isolation.step import Record, serve
from compiler.verify.reference.onnx import OnnxRuntime, prepare, save_model
from relaxd.contract.bundle.strings import Step
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.request import CompileRequest
from relaxd.errors import InputError, LoadContractError
from relaxd.loader.strings.program import Program
from relaxd.loader.strings.registry import OPERATORS

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

_SIZES = (1, 2, 5)
"""Of every dim, one after another: some tokenizers take one string or two."""
_TRIES = 24
_OTHERS = (
    "",
    " ",
    "unknown?",
    "\u00dcn\u00efc\u00f6de \u00df \u0130\u01c5",
    "\u6771\u4eac \U0001f600",
    "A-b_c 1.5",
    "\t two\nlines ",
)
"""Strings that hardly a vocabulary has."""
_MOST_WORDS = 4096
_MOVES = (
    "constant", "identity", "reshape", "flatten", "squeeze", "unsqueeze", "gather", "columns",
    "concat",
)  # fmt: skip
"""Steps that select elements, whichever they are."""
_TOLERANCE = 1e-5


@dataclass(frozen=True)
class Sides:
    """The complete model, and the steps around the model that is left of it."""

    complete: OnnxRuntime
    left: OnnxRuntime
    program: Program
    texts: Mapping[str, TensorSpec]
    numbers: Mapping[str, onnx.ValueInfoProto]
    words: Sequence[str]
    consts: Mapping[str, Any]
    part: StringPart

    def feed(self, size: int, random: np.random.Generator) -> Arrays:
        """Strings and numbers for every input; dims have that size."""
        texts = {
            name: self._strings([_extent(axis.size, size) for axis in spec.shape], random)
            for name, spec in self.texts.items()
        }
        share = 1.0 if random.random() < 0.75 else 0.5
        _fill_known(self.part.steps.before, texts, share, random)
        return texts | {name: _numbers(value, size, random) for name, value in self.numbers.items()}

    def _strings(self, shape: Sequence[int], random: np.random.Generator) -> Array:
        result = np.empty(shape, object)
        result.reshape(-1)[...] = [self._string(random) for _ in range(result.size)]
        return result

    def _string(self, random: np.random.Generator) -> str:
        kind = random.random()
        if kind < 0.1 or not self.words:
            return str(random.choice(_OTHERS))
        count = 1 if kind < 0.6 else int(random.integers(2, 8))
        chosen = [self.words[i] for i in random.integers(0, len(self.words), count)]
        mixed = [word.title() if random.random() < 0.2 else word for word in chosen]
        return mixed[0] if count == 1 else str(random.choice((" ", ", ", ""))).join(mixed)

    def run_steps(self, feed: Arrays) -> Mapping[str, Array]:
        """The outputs by way of the steps; raises InputError for strings that they refuse."""
        outputs = self.left.run(self.program.encode(feed), self.consts)
        return self.program.decode({name: np.asarray(one) for name, one in outputs.items()})


def compare(spec: Record, record: Callable[[Record], None]) -> None:
    """Record the engine and how many samples were compared, or the first that differs as
    `mismatch`, or `unable` with the reason why none can be compared.

    spec: model (the file), request (as JSON) and seed.
    """
    with tempfile.TemporaryDirectory() as folder:
        try:
            sides = _sides(Path(spec["model"]), CompileRequest.from_json(spec["request"]), folder)
        # Whatever ONNX Runtime cannot read cannot be compared.
        except Exception as error:
            record({"unable": summary(error)})
            return
        record({"engine": sides.complete.name})
        counts = {"compared": 0, "refused": 0}
        random = np.random.default_rng(spec["seed"])
        for index in range(_TRIES):
            feed = sides.feed(_SIZES[index % len(_SIZES)], random)
            outcome = _compare_one(sides, feed)
            if outcome not in counts:
                record({"mismatch": outcome, "strings": _excerpt(sides, feed)})
                return
            counts[outcome] += 1
        record(counts)


def _compare_one(sides: Sides, feed: Arrays) -> str:
    """`compared`, `refused` where the reference takes no such strings, or what differs."""
    try:
        wanted = sides.complete.run(feed, sides.consts)
    # It raises one class for all that it refuses.
    except Exception:
        return "refused"
    try:
        outputs = sides.run_steps(feed)
    except InputError as error:
        return f"the steps refuse what the model takes: {error}"
    for name, output in outputs.items():
        if why := _difference(np.asarray(wanted[name]), output):
            return f"output {name!r} {why}"
    return "compared"


def _difference(wanted: Array, output: Array) -> str | None:
    if wanted.shape != output.shape:
        return f"has the shape {list(output.shape)}, not {list(wanted.shape)}"
    if wanted.dtype.kind != "f":
        return None if np.array_equal(wanted, output) else "has other elements"
    scale = float(np.abs(wanted[np.isfinite(wanted)]).max(initial=0.0))
    near = np.allclose(output, wanted, _TOLERANCE, _TOLERANCE * scale, equal_nan=True)
    return None if near else "has other numbers"


def _sides(path: Path, request: CompileRequest, folder: str) -> Sides:
    loaded = open_model(path)
    assert isinstance(loaded, LoadedModel)
    cut = cut_strings(loaded.proto, request)
    assert cut is not None
    left, part = cut
    consts = dict(request.consts)
    numbers = {
        value.name: value
        for value in left.graph.input
        if value.name not in part.encoded and value.name not in consts and _is_given(value, left)
    }
    return Sides(
        _engine(loaded.proto, request, Path(folder), "complete"),
        _engine(left, request, Path(folder), "left"),
        _program(part),
        {spec.name: spec for spec in part.inputs if isinstance(spec, TensorSpec)},
        numbers,
        list(dict.fromkeys(_words(part.steps.before)))[:_MOST_WORDS],
        consts,
        part,
    )


def _is_given(value: onnx.ValueInfoProto, model: onnx.ModelProto) -> bool:
    return all(value.name != tensor.name for tensor in model.graph.initializer)


def _program(part: StringPart) -> Program:
    try:
        return part.program()
    except LoadContractError as error:
        raise RuntimeError(f"{error.need} is not installed") from error


def _engine(
    model: onnx.ModelProto, request: CompileRequest, folder: Path, name: str
) -> OnnxRuntime:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if node.op_type == "StringNormalizer":
            _use_common_locale(node)
    (folder / name).mkdir()
    path = save_model(copy, folder / name)
    prepared = prepare(copy, path, without_strings(request), folder / name, widen=False)
    if prepared.draws:
        raise RuntimeError("the model draws random numbers")
    extensions = any(node.domain == EXTENSIONS for node in copy.graph.node)
    return OnnxRuntime(str(prepared.path), threads=1, extensions=extensions)


def _use_common_locale(node: onnx.NodeProto) -> None:
    """Every machine has C.UTF-8, whose cases are those of en_US, the default."""
    retained = [one for one in node.attribute if one.name != "locale"]
    del node.attribute[:]
    node.attribute.extend([*retained, onnx.helper.make_attribute("locale", "C.UTF-8")])


def _words(steps: Sequence[Step]) -> Iterator[str]:
    """The strings that the steps know."""
    for step in steps:
        attributes = step.attributes
        for name in ("keys", "stop_words", "vocabulary"):
            yield from (one for one in attributes.get(name, ()) if isinstance(one, str))
        yield from (word for gram in attributes.get("grams", ()) for word in gram)
        vocabulary = attributes.get("tokenizer", {}).get("model", {}).get("vocab", ())
        yield from (one if isinstance(one, str) else one[0] for one in vocabulary)


def _fill_known(
    steps: Sequence[Step], texts: Arrays, share: float, random: np.random.Generator
) -> None:
    """Put keys into the share of the elements that tables are asked for: each column has a
    vocabulary of its own. Addresses in place of the strings show what a table is asked for.
    """
    flat = {name: array.reshape(-1) for name, array in texts.items()}
    values: Arrays = {}
    for number, (name, array) in enumerate(texts.items()):
        values[name] = np.arange(array.size).reshape(array.shape) * len(texts) + number
    names = [*texts]
    for step in steps:
        keys = step.attributes.get("keys")
        if keys and step.inputs[0] in values and isinstance(keys[0], str):
            for address in values[step.inputs[0]].reshape(-1).tolist():
                if random.random() < share:
                    index, number = divmod(address, len(names))
                    flat[names[number]][index] = str(random.choice(keys))
        elif step.op in _MOVES and {*step.inputs} <= values.keys():
            values[step.outputs[0]] = OPERATORS[step.op](step.attributes)(
                *(values[name] for name in step.inputs)
            )[0]


def _extent(size: int | None, dim: int) -> int:
    return dim if size is None else size


def _numbers(value: onnx.ValueInfoProto, size: int, random: np.random.Generator) -> Array:
    kind = value.type.tensor_type
    shape = [_extent(axis.dim_value or None, size) for axis in kind.shape.dim]
    dtype = DTYPES.get(kind.elem_type, "float32")
    if "float" in dtype:
        return np.asarray(random.standard_normal(shape)).astype(dtype)
    return np.asarray(random.integers(0, 2, shape)).astype(dtype)


def _excerpt(sides: Sides, feed: Arrays) -> dict[str, list[str]]:
    return {name: [str(one)[:80] for one in feed[name].reshape(-1)[:8]] for name in sides.texts}


if __name__ == "__main__":
    serve(compare)
