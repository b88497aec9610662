"""The search in a process of its own: ONNX Runtime reads a model that nobody has vouched for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler.errors import summary
from compiler.ir.files.model_file import LoadedScript, open_model
from compiler.ir.graph.draws import Draw
from compiler.isolation.step import Record, serve
from compiler.quantize.onnx.block_matmuls import has_blocks, quantize_rows, set_level
from compiler.quantize.onnx.matmuls import Grid, MatmulQuantization, cast_operands, recent
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from compiler.quantize.sensitivity import SCALES
from compiler.quantize.sensitivity.search import search
from compiler.verify.inputs import array_file
from compiler.verify.reference import feeding
from compiler.verify.reference.onnx import ENGINES, Engine, save_model, wide
from compiler.verify.weight_errors import OutputError
from relaxd.contract.narrow import Unit
from relaxd.contract.options import Precision

Array = np.ndarray[Any, Any]


def measure(spec: Record, record: Callable[[Record], None]) -> None:
    """Search the layers to keep, by what the reference makes of the model with some of them rounded
    (`compiler.quantize.sensitivity.search`).

    spec: model, consts, draws and engines of the reference, inputs (files of `array_file`, cheapest
    first), folder for models and outputs that holds `SCALES`, form, grids by value, or None, units
    and budget. Records
    `{error, left}`, and for each group, the worst first, `{layers, alone, kept}`; errors that are
    not finite are None.
    """
    loaded = open_model(Path(spec["model"]))
    assert not isinstance(loaded, LoadedScript)
    scales, grids = array_file.read(Path(spec["folder"]) / SCALES), spec["grids"]
    chosen = MatmulQuantization(
        scales=scales,
        grids=None if grids is None else {name: Grid(**one) for name, one in grids.items()},
    )
    rounder = _Rounder.of(loaded.proto, Precision(spec["form"]), chosen)
    trials = _Trials.of(spec, rounder.plain)
    half = trials.numbers[: len(trials.numbers) // 2 + 1]

    def error(units: Sequence[Unit], numbers: Sequence[int]) -> float:
        labels = frozenset(name for unit in units for name in unit)
        return trials.error(rounder.quantize(labels), numbers)

    selection = search(
        [tuple(unit) for unit in spec["units"]],
        spec["budget"],
        lambda units: error(units, trials.numbers),
        lambda units: error(units, half),
    )
    record({"error": _finite(selection.error), "left": _finite(selection.left)})
    for index, group in enumerate(selection.groups):
        is_retained = index < selection.retained
        record({"layers": group.layers, "alone": _finite(group.error), "kept": is_retained})


@dataclass(frozen=True)
class _Rounder:
    """plain: the model that rounds nothing; matmuls: of one that rounds rows, None of others."""

    form: Precision
    plain: onnx.ModelProto
    matmuls: RowMatmuls | None = None

    @classmethod
    def of(cls, model: onnx.ModelProto, form: Precision, chosen: MatmulQuantization) -> _Rounder:
        """The model may be changed in place."""
        if form is Precision.BFLOAT16:
            return cls(form, recent(model))
        if has_blocks(model):
            set_level(model, 0)
            return cls(form, model)
        return cls(form, model, RowMatmuls(model, chosen.scales, chosen.grids))

    def quantize(self, labels: frozenset[str]) -> onnx.ModelProto:
        """A copy in which those layers round."""
        if self.form is Precision.BFLOAT16:
            return cast_operands(self.plain, labels)
        if self.matmuls is not None:
            return self.matmuls.quantize(labels=labels)
        copy = onnx.ModelProto()
        copy.CopyFrom(self.plain)
        quantize_rows(copy, labels=labels)
        return copy


class _Trials:
    """Runs models at the points that the model without rounding answers, and compares with its
    outputs, which are kept in files.

    engine: what runs models; numbers: of the points among the spec's inputs.
    """

    def __init__(self, spec: Record, engine: str, plain: onnx.ModelProto) -> None:
        self._engine, self._folder = ENGINES[engine], Path(spec["folder"])
        self._consts, self._inputs = spec["consts"], [Path(one) for one in spec["inputs"]]
        self._draws = {name: Draw.from_json(draw) for name, draw in spec["draws"].items()}
        self.refusals: list[str] = []
        self.numbers = self._answered(plain)

    @classmethod
    def of(cls, spec: Record, plain: onnx.ModelProto) -> _Trials:
        """By the first engine that answers at any point; raises ValueError where none does."""
        refusals: list[str] = []
        for engine in spec["engines"]:
            trials = cls(spec, engine, plain)
            if trials.numbers:
                return trials
            refusals += trials.refusals
        raise ValueError(f"the reference answered at no point: {refusals[0]}")

    def _answered(self, plain: onnx.ModelProto) -> list[int]:
        """Writes the outputs of the model without rounding; the points that have some."""
        answered = []
        for number, outputs in self._runs(plain, range(len(self._inputs))):
            if isinstance(outputs, str):
                self.refusals.append(outputs)
                continue
            array_file.write(self._plain(number), outputs)
            answered.append(number)
        return answered

    def error(self, model: onnx.ModelProto, numbers: Sequence[int]) -> float:
        """The greatest error of all outputs, over these points together; infinite where the model
        gives none, or others.
        """
        errors: dict[str, OutputError] = {}
        for number, outputs in self._runs(model, numbers):
            if isinstance(outputs, str):
                return math.inf
            for name, want in array_file.read(self._plain(number)).items():
                if outputs[name].shape != want.shape:
                    return math.inf
                errors.setdefault(name, OutputError(name)).add(outputs[name], want, rows=False)
        return max((output.error for output in errors.values()), default=0.0)

    def _plain(self, number: int) -> Path:
        return self._folder / f"{number}.plain.arrays"

    def _runs(
        self, model: onnx.ModelProto, numbers: Sequence[int]
    ) -> Iterator[tuple[int, dict[str, Array] | str]]:
        """The model's outputs at each point, or why it has none there."""
        engine: Engine | None = None
        for number in numbers:
            feeds = {
                name: wide(array) for name, array in array_file.read(self._inputs[number]).items()
            }
            try:
                engine = engine or self._engine(str(save_model(model, self._folder, "model")))
                runs = partial(engine.run, consts=self._consts)
                outputs = feeding.run(runs, feeds, self._draws)
                yield number, {name: np.asarray(value) for name, value in outputs.items()}
            # A point that the reference refuses, for whatever reason, cannot be judged.
            except Exception as error:
                yield number, summary(error)


def _finite(error: float) -> float | None:
    return error if math.isfinite(error) else None


if __name__ == "__main__":
    serve(measure)
