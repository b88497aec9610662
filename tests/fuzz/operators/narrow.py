"""Passages in other types: 16-bit floats, float64 and integers."""

from onnx import TensorProto

from tests.fuzz.draft import Draft
from tests.fuzz.registry import operator


@operator(1)
def half(draft: Draft) -> None:
    """A few functions in float16 or bfloat16."""
    x = draft.pick()
    draft.quantized = True
    ops: tuple[str, ...]
    if draft.chance(0.5):
        kind, ops = TensorProto.FLOAT16, ("Relu", "Tanh", "Sigmoid", "Abs", "Add", "Mul", "Erf")
    else:
        kind, ops = TensorProto.BFLOAT16, ()
    name = draft.node("Cast", [draft.node("Tanh", [x.name])[0]], to=kind)[0]
    for _ in range(draft.choose((1, 2))):
        if ops:
            op = draft.choose(ops)
            name = draft.node(op, [name, name] if op in ("Add", "Mul") else [name])[0]
    draft.apply("Cast", [name], x.shape, to=TensorProto.FLOAT)


@operator(1)
def quantize(draft: Draft) -> None:
    """Functions of float32 on both sides of a cast to 16 bits and back."""
    x, functions = draft.pick(), ("Tanh", "Sigmoid", "Erf", "Softplus", "Neg", "Abs")
    draft.quantized = True
    kind = draft.choose((TensorProto.BFLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT16))
    bounded = draft.node("Tanh", [x.name])[0]
    name = draft.node("Cast", [draft.node(draft.choose(functions), [bounded])[0]], to=kind)[0]
    wide = draft.node("Cast", [name], to=TensorProto.FLOAT)[0]
    draft.apply(draft.choose(functions), [wide], x.shape)


@operator(0.7)
def half_matmul(draft: Draft) -> None:
    """A matrix in float16 by itself turned."""
    x = draft.pick(2, 3)
    x.fill_inputs(-1)
    draft.quantized = True
    name = draft.node("Cast", [draft.node("Tanh", [x.name])[0]], to=TensorProto.FLOAT16)[0]
    order = [*range(x.rank - 2), x.rank - 1, x.rank - 2]
    turned = draft.node("Transpose", [name], perm=order)[0]
    matmul = draft.node("MatMul", [name, turned])[0]
    draft.apply("Cast", [matmul], (*x.shape[:-1], x.shape[-2]), to=TensorProto.FLOAT)


@operator(0.7)
def double(draft: Draft) -> None:
    x = draft.pick()
    name = draft.node("Cast", [x.name], to=TensorProto.DOUBLE)[0]
    name = draft.node(draft.choose(("Sigmoid", "Tanh", "Abs", "Neg")), [name])[0]
    draft.apply("Cast", [name], x.shape, to=TensorProto.FLOAT)


@operator(1)
def integers(draft: Draft) -> None:
    """Integer arithmetic on rounded numbers."""
    x = draft.give_input()
    kind, dtype = draft.choose(((TensorProto.INT32, "int32"), (TensorProto.INT64, "int64")))
    scaled = draft.node("Round", [draft.node("Mul", [x.name, draft.constant(20.0)])[0]])[0]
    name = draft.node("Cast", [scaled], to=kind)[0]
    for _ in range(draft.choose((1, 2, 3))):
        op = draft.choose(("Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Abs", "Neg"))
        other = draft.constant(draft.choose((2, 3, 7, -5)), dtype)
        name = draft.node(op, [name] if op in ("Abs", "Neg") else [name, other])[0]
    wide = draft.node("Cast", [name], to=TensorProto.FLOAT)[0]
    draft.apply("Mul", [wide, draft.constant(0.01)], x.shape)
