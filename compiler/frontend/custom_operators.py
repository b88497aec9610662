"""Gives a model the definitions of the operators that C code computes (`operators=`): by these the
library is judged, and targets without a C compiler compute them.
"""

from dataclasses import replace

import onnx
import onnx.parser

from compiler.errors import ImportFailed, summary
from compiler.ir.files.model_file import LoadedModel, LoadedScript
from compiler.ir.onnx import (
    operators,  # noqa: F401  fills the registry
    registry,
)
from compiler.ir.onnx.model.opsets import opsets_of
from compiler.ir.onnx.model.walking import walk
from relaxd.contract.operators import CustomOperator
from relaxd.contract.request import CompileRequest


def as_wanted(
    model: LoadedModel | LoadedScript, request: CompileRequest
) -> LoadedModel | LoadedScript:
    """The model with a function for every custom operator: it is changed in place. Raises
    ImportFailed where no node has an operator, or nothing defines it.
    """
    if not request.operators:
        return model
    if isinstance(model, LoadedScript):
        raise _refused(
            "custom operators compute nodes of ONNX models", hint="export the module to ONNX"
        )
    added = [f for o in request.operators if (f := _definition(model.proto, o)) is not None]
    model.proto.functions.extend(added)
    # The reference is given the model as it is now, not the file.
    return replace(model, file=None) if added else model


def _definition(model: onnx.ModelProto, operator: CustomOperator) -> onnx.FunctionProto | None:
    """The function to add, None where the model has its own."""
    domain, name = operator.key
    if registry.find(domain, name, opsets_of(model.opset_import).get(domain, 1)) is not None:
        raise _refused(f"relaxd computes {operator.name} itself", operator.name)
    nodes = [node for node in _nodes(model) if (node.domain, node.op_type) == (domain, name)]
    if not nodes:
        raise _refused(
            f"no node of the model has the operator {operator.name}",
            operator.name,
            "`relaxd inspect` lists the model's operators",
        )
    if any((f.domain, f.name) == (domain, name) for f in model.functions):
        if operator.definition:
            raise _refused(
                f"the model has a function {operator.name} of its own",
                operator.name,
                "leave out the definition",
            )
        return None
    if not operator.definition:
        raise _refused(
            f"nothing says what {operator.name} computes, so that its code cannot be judged",
            operator.name,
            "give the text of an ONNX function as its definition",
        )
    return _parsed(operator)


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    inner = [node for function in model.functions for node in walk(function.node)]
    return [*walk(model.graph.node), *inner]


def _parsed(operator: CustomOperator) -> onnx.FunctionProto:
    try:
        function = onnx.parser.parse_function(operator.definition)
        onnx.checker.check_function(function, _context(function))
    except (onnx.parser.ParseError, onnx.checker.ValidationError, UnicodeError) as error:
        raise _refused(
            f"the definition of {operator.name} cannot be read: {summary(error)}", operator.name
        ) from error
    counts = [len(function.input), len(function.output)]
    if (function.domain, function.name) != operator.key:
        raise _refused(
            f"the definition of {operator.name} defines {function.domain}::{function.name}",
            operator.name,
        )
    if counts != [len(operator.inputs), len(operator.outputs)]:
        raise _refused(
            f"the definition of {operator.name} has {counts[0]} inputs and {counts[1]} outputs, "
            f"its code {len(operator.inputs)} and {len(operator.outputs)}",
            operator.name,
        )
    return function


def _context(function: onnx.FunctionProto) -> onnx.checker.C.CheckerContext:
    context = onnx.checker.C.CheckerContext()
    context.ir_version = onnx.IR_VERSION
    context.opset_imports = {one.domain: one.version for one in function.opset_import}
    return context


def _refused(message: str, operator: str = "", hint: str | None = None) -> ImportFailed:
    field = f"operators.{operator}" if operator else "operators"
    return ImportFailed(message, reason="custom_operator", field=field, hint=hint)
