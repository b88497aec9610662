"""The cases: onnx's own node tests and the models in its data folder, each with its category and
its expected results.
"""

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import onnx
from onnx import numpy_helper

FOLDERS = ("pytorch-operator", "pytorch-converted", "simple")
NODE = "node"

DataSet = tuple[Sequence[Any], Sequence[Any]]
"""Positional inputs, and the outputs wanted."""


@dataclass(frozen=True)
class Case:
    """One model and its data.

    suite: `node` or the data folder; category: the operator, or the folder again.
    data_sets: positional inputs (of the graph's inputs that are no initialisers) with the outputs
    wanted.
    """

    name: str
    suite: str
    category: str
    model: onnx.ModelProto = field(repr=False)
    data_sets: Sequence[DataSet] = field(repr=False)
    rtol: float
    atol: float

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The graph's inputs that the data sets give."""
        initialised = {tensor.name for tensor in self.model.graph.initializer}
        return [value for value in self.model.graph.input if value.name not in initialised]


def collect() -> list[Case]:
    """Every case, in a fixed order; onnx makes the node cases' data as it goes, which takes some
    ten seconds.
    """
    return [*_node_cases(), *(case for folder in FOLDERS for case in _folder_cases(folder))]


def _node_cases() -> Iterator[Case]:
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        # The cases about overflow and division by zero overflow and divide by zero.
        warnings.simplefilter("ignore")
        results = sorted(collect_testcases(None), key=lambda case: case.name)
    operators = {case.name: case.model.graph.node[0].op_type for case in results}
    for case in results:
        data = [
            ([_plain(item) for item in arguments], [_plain(item) for item in created])
            for arguments, created in case.data_sets
        ]
        yield Case(
            case.name, NODE, _operator(case.name, operators), case.model, data, case.rtol, case.atol
        )


def _operator(name: str, operators: dict[str, str]) -> str:
    """A function body's nodes are not what its case is about: those count with the case of the
    function itself.
    """
    return operators.get(re.sub(r"_expanded.*$", "", name), operators[name])


def _folder_cases(folder: str) -> Iterator[Case]:
    from onnx.backend.test.loader import load_model_tests

    for test in sorted(load_model_tests(kind=folder), key=lambda test: test.name):
        directory = Path(test.model_dir)
        model = onnx.load(directory / "model.onnx")
        data = [_data_set(each, model.graph) for each in sorted(directory.glob("test_data_set*"))]
        yield Case(test.name, folder, folder, model, data, test.rtol, test.atol)


def _data_set(directory: Path, graph: onnx.GraphProto) -> tuple[list[Any], list[Any]]:
    return _values(directory, "input", graph.input), _values(directory, "output", graph.output)


def _values(directory: Path, side: str, values: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    files = [
        directory / f"{side}_{index}.pb"
        for index in range(len(list(directory.glob(f"{side}_*.pb"))))
    ]
    return [
        _value(file.read_bytes(), value.type) for file, value in zip(files, values, strict=False)
    ]


def _value(data: bytes, kind: onnx.TypeProto) -> Any:
    if kind.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def _plain(item: Any) -> Any:
    return numpy_helper.to_array(item) if isinstance(item, onnx.TensorProto) else item
