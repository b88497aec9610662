"""Compiles a cut of a model and compares it with the reference, both fed the reference's values."""

import dataclasses
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import onnx

from compiler import build
from compiler.bisection import cuts, reproducer
from compiler.bisection.cuts import Cut, Declared
from compiler.bisection.values import Values
from compiler.errors import CompileError
from compiler.ir.files.node_labels import label_of
from compiler.ir.onnx.model.matmuls import OPERATORS
from compiler.ir.onnx.model.nodes import Graph
from compiler.ir.onnx.model.walking import walk
from compiler.isolation.messages import CompileJob
from compiler.quantize.onnx.block_matmuls import has_blocks, is_quantizable
from compiler.quantize.onnx.row_matmuls import RowMatmuls
from compiler.verify.inputs.samples import to_npz
from compiler.verify.report import Mismatch
from relaxd.contract.dims.tensors import TensorSpec
from relaxd.contract.operators import CustomOperator
from relaxd.contract.options import CacheForm, Calibration, Precision, PrecisionOver, StateForm
from relaxd.contract.request import CompileRequest


@dataclass(frozen=True)
class Departure:
    """A cut that departs: `folder` with its model and inputs, and the request to repeat it."""

    folder: Path
    request: CompileRequest


@dataclass
class Trials:
    """job: of the whole model; specs: symbolic shapes of its values, as far as they are known."""

    job: CompileJob
    graph: Graph
    values: Values
    specs: Mapping[str, TensorSpec]
    scratch: Path
    departures: dict[Cut, Departure] = field(default_factory=dict)
    _count: int = 0

    def departing(self, cut: Cut) -> tuple[str, ...]:
        """Those of the cut's outputs that depart; none where it cannot be compiled or compared."""
        comparable = tuple(name for name in cut.outputs if name in self.values.tensors)
        try:
            arrays = self.values.of(self.graph.inputs_of(cut.nodes))
        except KeyError:
            # A sequence, or another value that no input of a model can be.
            return ()
        if not comparable or not arrays:
            return ()
        symbolic = cuts.symbolic(arrays, self.specs, self.request)
        for declared in dict.fromkeys((symbolic, cuts.declare_fixed(arrays))):
            try:
                return self._compare(cut, comparable, declared, arrays)
            except CompileError as error:
                print(f"a cut of {len(cut.nodes)} nodes: {error}", flush=True)
        return ()

    @property
    def request(self) -> CompileRequest:
        """The declarations about the whole model."""
        return CompileRequest.from_json(self.job.request)

    def _compare(
        self,
        cut: Cut,
        compared: tuple[str, ...],
        declared: Declared,
        arrays: Mapping[str, cuts.Array],
    ) -> tuple[str, ...]:
        """The outputs that depart; raises CompileError where there is no library to compare."""
        self._count += 1
        folder = self.scratch / str(self._count)
        folder.mkdir()
        outputs = [self._output(name) for name in compared]
        onnx.save_model(
            cuts.model_of(self.graph, cut.nodes, declared.inputs, outputs),
            folder / reproducer.MODEL,
        )
        to_npz(folder / reproducer.INPUTS, arrays)
        options = dataclasses.replace(
            self.request.options,
            verify=True,
            profile=False,
            state=StateForm.PASSED,
            cache=CacheForm.FLOAT32,
            cache_error=None,
            lora_rank=0,
            lora_targets=None,
            calibration=Calibration.NONE,
            precision=self._precision(cut),
            precision_error=None,
            precision_over=PrecisionOver.FAIL,
        )
        request = CompileRequest(
            dims=declared.dims,
            targets=(self.job.target,),
            options=options,
            operators=self._operators(cut),
        )
        try:
            self._build(folder, request)
        except Mismatch as error:
            self.departures[cut] = Departure(folder, request)
            return error.departing
        except CompileError as error:
            if error.code.startswith("verify."):
                print(f"a cut of {len(cut.nodes)} nodes: {error}", flush=True)
                return ()
            raise
        finally:
            shutil.rmtree(folder / "bundle", ignore_errors=True)
            if cut not in self.departures:
                shutil.rmtree(folder)
        return ()

    def _precision(self, cut: Cut) -> Precision:
        """The precision of the cut's matmuls: int8 where the whole model's is, and the cut has some
        that quantize.
        """
        precision = self.request.options.precision
        if precision is not Precision.INT8:
            return Precision.FLOAT32
        nodes = [self.graph.nodes[index] for index in cut.nodes]
        if has_blocks(self.graph.model):
            has_int8 = any(map(is_quantizable, walk(nodes)))
        else:
            layers = frozenset(self._matmuls.layers.layers)
            has_int8 = any(node.op_type in OPERATORS and label_of(node) in layers for node in nodes)
        return precision if has_int8 else Precision.FLOAT32

    def _operators(self, cut: Cut) -> tuple[CustomOperator, ...]:
        """Those of nodes of the cut, in whose model their definitions are functions."""
        nodes = walk([self.graph.nodes[index] for index in cut.nodes])
        keys = {(node.domain, node.op_type) for node in nodes}
        used = (operator for operator in self.request.operators if operator.key in keys)
        return tuple(dataclasses.replace(operator, definition="") for operator in used)

    @cached_property
    def _matmuls(self) -> RowMatmuls:
        return RowMatmuls(self.graph.model)

    def _output(self, name: str) -> onnx.ValueInfoProto:
        rank = len(self.specs[name].shape) if name in self.specs else None
        return cuts.output(name, self.values.tensors[name], rank)

    def _build(self, folder: Path, request: CompileRequest) -> None:
        job = CompileJob(
            model=str(folder / reproducer.MODEL),
            request=request.to_json(),
            target=self.job.target,
            output=str(folder / "bundle"),
            model_name="model",
            samples=str(folder / reproducer.INPUTS),
        )
        build.build(job, more_points=False)
